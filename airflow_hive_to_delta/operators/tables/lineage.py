"""Converted tables in OpenLineage's terms. Imported only where OpenLineage is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.providers.common.compat.openlineage.facet import (
    Dataset,
    OutputDataset,
    OutputStatisticsOutputDatasetFacet,
    SchemaDatasetFacet,
    SchemaDatasetFacetFields,
)
from airflow.providers.openlineage.extractors import OperatorLineage

from airflow_hive_to_delta.core.models import TableInfo
from airflow_hive_to_delta.core.results import ConversionResult


def lineage_of(converted: Sequence[tuple[TableInfo, ConversionResult]]) -> OperatorLineage[Any, Any]:
    """The lineage of converted tables: each Hive table as an input, the Delta table at its location as an output."""
    return OperatorLineage(
        inputs=[_input(table) for table, _ in converted],
        outputs=[_output(table, result) for table, result in converted],
    )


def _input(table: TableInfo) -> Dataset:
    facets: dict[str, Any] = {"schema": _schema(table)}
    if table.source == "glue":
        # As OpenLineage names tables of Glue.
        namespace = f"arn:aws:glue:{table.region or ''}:{table.account_id or ''}"
        return Dataset(namespace=namespace, name=f"table/{table.database}/{table.name}", facets=facets)
    return Dataset(namespace=f"hive://{table.source}", name=table.qualified_name, facets=facets)


def _output(table: TableInfo, result: ConversionResult) -> OutputDataset:
    # As OpenLineage names datasets on a storage: the namespace is the bucket, the name the path in it.
    scheme, _, rest = result.location.partition("://")
    bucket, _, path = rest.partition("/")
    on_disk = scheme == "file"
    return OutputDataset(
        namespace="file" if on_disk else f"{scheme}://{bucket}",
        name=f"/{path}" if on_disk else path,
        facets={"schema": _schema(table)},
        outputFacets={
            "outputStatistics": OutputStatisticsOutputDatasetFacet(
                rowCount=result.row_count, size=result.byte_count, fileCount=result.file_count
            )
        },
    )


def _schema(table: TableInfo) -> SchemaDatasetFacet:
    columns = [(column["Name"], column["Type"], column.get("Comment")) for column in table.columns or []]
    columns += [(key, table.partition_types.get(key, "string"), None) for key in table.partition_keys]
    return SchemaDatasetFacet(
        fields=[SchemaDatasetFacetFields(name=name, type=kind, description=text) for name, kind, text in columns]
    )
