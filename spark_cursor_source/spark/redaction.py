"""Secrets in options that Spark would show in plans, its UI and its event log."""

from __future__ import annotations

import logging

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: Spark hides options that match a pattern of its own or this one, which a session may set
OPTION = "spark.sql.redaction.options.regex"
DEFAULT = "(?i)url"
#: names of Kafka options whose values are secrets and that no pattern of Spark's knows, and keys in PEM
SECRETS = r"(?i)kafka[.](ssl|sasl|https)[.].*(jaas|pem|key|phrase|secret|token|password)|PRIVATE KEY"


def hide_secrets(spark: SparkSession) -> None:
    """Have Spark hide them in whatever it shows of this session's queries.

    A declarative pipeline may not change its session. It has to have the setting in its specification, and
    a warning says so.
    """
    present = spark.conf.get(OPTION, DEFAULT) or DEFAULT
    if SECRETS in present:
        return
    wanted = f"{present}|{SECRETS}"
    try:
        spark.conf.set(OPTION, wanted)
    except PySparkException as refused:
        if not str(refused.getCondition()).startswith("SESSION_MUTATION"):
            raise
        log.warning("secrets_not_hidden: put this setting into the pipeline's spec: %s: %s", OPTION, wanted)
