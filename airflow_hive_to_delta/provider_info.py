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
        "config": {
            "hive_to_delta": {
                "description": "The page of campaigns in Airflow's UI.",
                "options": {
                    "campaigns": {
                        "description": "The staging roots under which the page looks for campaigns, separated by "
                        "commas, such as s3://bucket/staging.\n",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "s3://bucket/staging",
                        "default": "",
                    },
                    "campaigns_conn_id": {
                        "description": "The Airflow connection by which the page reads them and writes decisions. "
                        "Empty: the identity of the API server.\n",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "aws_default",
                        "default": "",
                    },
                },
            }
        },
    }
