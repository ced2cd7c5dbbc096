"""Secrets in options that Spark would show in plans, its UI and its event log."""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError
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
    _hide_without_session(spark)
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


def _hide_without_session(spark: SparkSession) -> None:
    """Have Spark hide them also where a plan is printed in a thread without an active session.

    Such is every Python thread but the one that made the session. Spark reads no session's settings there,
    only their defaults, and there is no other way to those than by reflection. Spark Connect has no such
    threads: its server runs all in its session.
    """
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return
    try:
        setting = jvm.org.apache.spark.sql.internal.SQLConf.SQL_OPTIONS_REDACTION_PATTERN()
        default = setting.defaultValueString()
        if SECRETS in default:
            return
        field = setting.getClass().getDeclaredField("_defaultValue")
        field.setAccessible(True)
        field.set(setting, setting.valueConverter().apply(f"{default}|{SECRETS}"))
    except (Py4JError, TypeError):  # a Spark that has no such field, or lets nobody reach it
        log.warning(
            "secrets_not_hidden_in_threads: in a thread without an active session explain() and errors may"
            " print PEM keys and passphrases; keep them in a file, and name it in kafka.config.file"
        )
