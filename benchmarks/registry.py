"""All contenders by their names."""

from __future__ import annotations

from benchmarks import contenders, spark_contenders
from benchmarks.contenders import Contender

_ALL: tuple[type[Contender], ...] = (
    spark_contenders.Ours,
    spark_contenders.ConvertToDelta,
    spark_contenders.ConvertToDeltaNoStatistics,
    contenders.DeltaRs,
    contenders.PyIceberg,
    contenders.Footers,
    contenders.Listing,
    spark_contenders.SyncUnchanged,
    spark_contenders.SyncNew,
    spark_contenders.VerifyCounts,
    spark_contenders.VerifyFull,
    spark_contenders.QueryOurs,
    spark_contenders.QueryConvert,
    spark_contenders.QueryDeltaRs,
)
CONTENDERS: dict[str, type[Contender]] = {contender.name: contender for contender in _ALL}
