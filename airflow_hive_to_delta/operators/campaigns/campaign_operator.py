"""What the tasks of a campaign share: its name, its phase, and its documents under the staging root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, ObjectStoragePath
from airflow.sdk.exceptions import AirflowFailException

from airflow_hive_to_delta.campaigns.states import PHASES, Phase
from airflow_hive_to_delta.campaigns.store import CAMPAIGNS, CampaignStore, check_name
from airflow_hive_to_delta.core.errors import HiveToDeltaError
from airflow_hive_to_delta.operators.aws.identity import aws_clients
from airflow_hive_to_delta.operators.staging import browser_url, check_root, split_connection
from airflow_hive_to_delta.operators.tables.outcomes import airflow_error

if TYPE_CHECKING:
    from airflow.sdk import Context

_SCHEMES = ("s3://", "s3a://", "file://")


class CampaignTask:
    """What every task of a campaign can do, whether it runs a job or not.

    A class of operators that derives from it calls :meth:`check_campaign` when it is made.
    """

    campaign: str
    phase: Phase
    #: Such as ``s3://bucket/folder``; ``s3://conn_id@bucket/folder`` names the connection, too.
    staging: str | None
    staging_conn_id: str | None
    aws_conn_id: str | None
    region_name: str | None

    def check_campaign(self) -> None:
        """Refuse, when a DAG is parsed, what cannot be a campaign; templates are checked when they run."""
        check_campaign(self.campaign, str(self.staging), self.phase)

    def open_store(self) -> CampaignStore:
        """The documents of the campaign, read and written with the identity of the task's AWS connection.

        :raises AirflowException: the staging root or the name cannot be one, or its storage cannot be reached.
        """
        root, named = split_connection(str(self.staging))
        scheme, _, rest = root.partition("://")
        try:
            if not scheme.startswith("s3"):
                return CampaignStore.open(root, self.campaign)
            from airflow_hive_to_delta.core.storage.aws import s3_client

            conn_id = named or (self.aws_conn_id if self.staging_conn_id is None else self.staging_conn_id)
            with aws_clients(conn_id, self.region_name):
                # Its own client: the tasks' other clients may have another identity.
                client = s3_client(rest.partition("/")[0], self.region_name)
            return CampaignStore.open(root, self.campaign, s3_client=client)
        except ValueError as error:
            raise AirflowFailException(str(error)) from error
        except HiveToDeltaError as error:
            raise airflow_error(error) from error

    def browser_address(self, document: str) -> str:
        """Where a browser shows a document of the campaign, by its path from the folder of the campaign."""
        conn_id = self.aws_conn_id if self.staging_conn_id is None else self.staging_conn_id
        needs_none = split_connection(str(self.staging))[1] or not str(self.staging).startswith("s3")
        root = ObjectStoragePath(str(self.staging).rstrip("/"), conn_id=None if needs_none else conn_id)
        return browser_url(root / CAMPAIGNS / self.campaign / document)

    def run_key(self, context: Context) -> str:
        """A name for the wave of this run, that no other run of the campaign has: phases may share a DAG."""
        run: Any = context["dag_run"]
        return f"{run.dag_id}.{run.run_id}.{self.phase}"


class CampaignOperator(CampaignTask, BaseOperator):
    """The base of tasks that read and write the documents of a campaign, and run no job.

    :param campaign: the name of the campaign: that of its folder under the staging root. (templated)
    :param phase: what the campaign does: ``convert``, ``sync``, ``cut_over`` or ``roll_back``.
    :param staging: the staging root, on S3 or on a disk that all workers share. (templated)
    :param staging_conn_id: the AWS connection of a staging root on S3; ``aws_conn_id`` when not given. (templated)
    :param aws_conn_id: the AWS connection; None: the environment's identity. (templated)
    :param region_name: the AWS region, when the connection names none. (templated)
    """

    template_fields: Sequence[str] = ("campaign", "staging", "staging_conn_id", "aws_conn_id", "region_name")
    ui_color = "#ede7f6"

    def __init__(
        self,
        *,
        campaign: str,
        staging: str,
        phase: Phase = "convert",
        staging_conn_id: str | None = None,
        aws_conn_id: str | None = "aws_default",
        region_name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.campaign = campaign
        self.staging = staging
        self.phase = phase
        self.staging_conn_id = staging_conn_id
        self.aws_conn_id = aws_conn_id
        self.region_name = region_name
        self.check_campaign()


def check_campaign(campaign: str, staging: str, phase: str) -> None:
    """Refuse, when a DAG is parsed, what cannot be a campaign; templates are checked when they run."""
    if "{{" not in campaign:
        check_name(campaign)
    check_root(staging)
    if "{{" not in staging and not staging.startswith(_SCHEMES):
        raise ValueError(f"staging is {staging!r}, expected an address on s3:// or file:// for a campaign")
    if phase not in PHASES:
        raise ValueError(f"phase is {phase!r}, expected one of {', '.join(PHASES)}")
