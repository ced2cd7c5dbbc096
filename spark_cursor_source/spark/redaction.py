"""Secrets in options that Spark would show in plans, its UI and its event log."""

from __future__ import annotations

from pyspark.sql import SparkSession

#: Spark hides options that match a pattern of its own or this one, which a session may set
OPTION = "spark.sql.redaction.options.regex"
DEFAULT = "(?i)url"
#: names of Kafka options whose values are secrets and that no pattern of Spark's knows, and keys in PEM
SECRETS = r"(?i)kafka[.](ssl|sasl|https)[.].*(jaas|pem|key|phrase|secret|token|password)|PRIVATE KEY"


def hide_secrets(spark: SparkSession) -> None:
    """Have Spark hide them in whatever it shows of this session's queries."""
    present = spark.conf.get(OPTION, DEFAULT) or DEFAULT
    if SECRETS not in present:
        spark.conf.set(OPTION, f"{present}|{SECRETS}")
