"""What Airflow asks a provider. Without imports: it is read before Airflow's configuration is up."""

from __future__ import annotations


def get_provider_info() -> dict[str, object]:
    operators = "airflow_hive_to_delta.operators"
    links = "airflow_hive_to_delta.links"
    return {
        "package-name": "airflow-hive-to-delta",
        "name": "Hive to Delta",
        "description": "Hive tables in Parquet become Delta Lake tables in place: no copy, no lost row.",
        "integrations": [
            {
                "integration-name": "Hive to Delta",
                "external-doc-url": "https://docs.delta.io/latest/",
                "tags": ["software"],
            }
        ],
        "operators": [
            {
                "integration-name": "Hive to Delta",
                "python-modules": [
                    f"{operators}.{name}"
                    for name in (
                        *("discover", "plan", "list_files", "convert", "verify", "sync"),
                        *("vacuum", "rollback", "cut_over", "report"),
                    )
                ],
            }
        ],
        "triggers": [
            {"integration-name": "Hive to Delta", "python-modules": ["airflow_hive_to_delta.triggers.spark_job"]}
        ],
        "extra-links": [f"{links}.SparkJobLink", f"{links}.ReportLink"],
    }
