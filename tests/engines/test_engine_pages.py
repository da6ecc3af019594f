"""The DAG of each engine's page, run as it is against the stand-in, whose jobs are really run by ``spark-submit``."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.lake import Lake
from tests.support.migrations import orders_and_people
from tests.support.oracle import assert_same, delta_at
from tests.support.platforms import Platform
from tests.support.policies import OF_JOBS, OF_TASKS, asked_of_aws, denied, policies_of
from tests.support.project import PROJECT

PAGES = PROJECT / "docs" / "engines"
#: By page, the stand-in.
PLATFORMS = {
    "emr-serverless.md": "tests.support.platform_emr.EmrServerlessPlatform",
    "kubernetes.md": "tests.support.platform_kubernetes.KubernetesPlatform",
    "glue.md": "tests.support.platform_glue.GluePlatform",
}
#: By page, whose policies are on it, in this order.
IDENTITIES = {
    "emr-serverless.md": (OF_TASKS, OF_JOBS),
    "kubernetes.md": (OF_JOBS, OF_TASKS),
    "glue.md": (OF_TASKS, OF_JOBS),
}
#: Pages whose DAGs other modules run, with what only that platform has.
ELSEWHERE = {
    "databricks.md": "tests/engines/test_databricks.py",
    "local.md": "tests/task_groups/test_verify_in_convert.py",
    "on-premises.md": "tests/engines/test_on_premises.py",
    "spark-connect.md": "tests/engines/test_spark_connect.py",
    "spark-submit.md": "tests/engines/test_spark_submit.py",
}

#: What the pages say that tables with partitions in other buckets need besides.
READ_OTHER_BUCKETS = {"Action": ["s3:ListBucket", "s3:GetObject"], "Resource": "arn:aws:s3:::*"}
DELETIONS = ("DeleteDatabase", "DeleteTable", "BatchDeleteTable", "DeletePartition", "BatchDeletePartition")


def test_every_page_is_run() -> None:
    assert {path.name for path in PAGES.glob("*.md")} == PLATFORMS.keys() | ELSEWHERE.keys()
    for page, module in ELSEWHERE.items():
        assert page in (PROJECT / module).read_text(), f"{module} runs the DAG of {page}"


@pytest.mark.parametrize(
    "subject", ["What it needs|Prerequisites", "identit|grants|Rights", "a failure", "What it costs"]
)
def test_every_page_tells_what_a_user_has_to_know(subject: str) -> None:
    lacking = {path.name for path in PAGES.glob("*.md") if not re.search(f"^## .*({subject})", path.read_text(), re.M)}
    assert not lacking


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("*.md") if "```json" in path.read_text()))
def test_the_policies_of_a_page_allow_no_write_to_data_and_no_deletion(page: str) -> None:
    data, entry = "arn:aws:s3:::lake/t/000000_0", "arn:aws:s3:::lake/t/_delta_log/00000000000000000000.json"
    dangerous = {
        *(("s3:PutObject", data), ("s3:DeleteObject", data), ("s3:DeleteObject", entry)),
        *((f"glue:{operation}", "arn:aws:glue:us-east-1:123456789012:database/sales") for operation in DELETIONS),
    }
    for policy in policies_of(PAGES / page, {}):
        assert denied(dangerous, policy) == sorted(dangerous)


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(PLATFORMS))
def test_the_dag_of_a_page(page: str, lake: Lake, run_dag, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    originals = orders_and_people(lake)
    lake.put("broken/000000_0", b"this is no Parquet file")
    lake.glue_table({"id": "bigint"}, name="broken")
    module, _, name = PLATFORMS[page].rpartition(".")
    platform: Platform = getattr(import_module(module), name)(tmp_path, staging=f"s3://{lake.bucket}/staging")
    request.addfinalizer(platform.close)
    platform.runs_jobs = True
    (source,) = re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text(), re.DOTALL | re.MULTILINE)
    source = source.replace("s3://lake/", f"s3://{lake.bucket}/").replace('"sales', f'"{lake.database}')

    source = source.replace(" conf=", " poll_seconds=0.5, conf=").replace("PerTable(", "PerTable(retries=0, ")
    with asked_of_aws() as asked:
        run = run_dag(source)

    logs = "\n".join(f"{job}\n{platform.log_of(job)[-5000:]}" for job in platform.jobs)
    assert [job.state for job in platform.jobs] == ["succeeded"], logs
    outcomes = {table["table"].rpartition(".")[2]: table for table in run.xcom("report", "report")["tables"]}
    assert {name: table["status"] for name, table in outcomes.items()} == {
        **{"orders": "converted", "people": "converted", "broken": "failed"},
    }, logs
    assert run.state == "failed", "for the broken table"
    for name, original in originals.items():
        assert outcomes[name]["verified"] == {"counts": 0}
        assert_same(lake.spark, original, delta_at(lake.spark, lake.location(name)))
        registered = lake.glue.get_table(DatabaseName=f"{lake.database}_delta", Name=name)["Table"]
        assert registered["Parameters"]["table_type"] == "DELTA"
    assert "testing" not in run.all_xcoms(), "no credential"
    names = {":::lake": f":::{lake.bucket}", "/sales": f"/{lake.database}"}
    policies = dict(zip(IDENTITIES[page], policies_of(PAGES / page, names), strict=True))
    assert asked.keys() == policies.keys()
    asked[OF_TASKS] |= getattr(platform, "asked", set())
    lacking = {who: denied(asked[who], [*policies[who], READ_OTHER_BUCKETS]) for who in policies}
    assert lacking == {who: [] for who in policies}
