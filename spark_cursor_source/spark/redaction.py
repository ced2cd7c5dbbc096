"""Redaction of secret options that Spark would show in plans, its UI and its event log."""

from __future__ import annotations

import logging

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_cursor_source.spark.classic import add_to_default_redaction

log = logging.getLogger(__name__)

#: Spark redacts options that match its built-in pattern or this pattern, which a session may set
OPTION = "spark.sql.redaction.options.regex"
DEFAULT = "(?i)url"
#: names of secret Kafka options that no pattern of Spark covers, and the header of PEM private keys
SECRETS = r"(?i)kafka[.](ssl|sasl|https)[.].*(jaas|pem|key|phrase|secret|token|password)|PRIVATE KEY"


def hide_secrets(spark: SparkSession) -> None:
    """Makes Spark redact secret options in the output of this session's queries.

    A declarative pipeline cannot change its session. Its specification must contain the setting. This
    function then logs a warning with the setting.
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
        log.warning(
            "Spark may show secret options. Put this setting into the pipeline's spec. If it is there, "
            "ignore this line: Spark Connect 4.3 does not show the setting to programs. "
            "event=secrets_not_hidden setting=%s value=%s",
            OPTION,
            wanted,
        )


def _hide_without_session(spark: SparkSession) -> None:
    """Makes Spark also redact plans that are printed in a thread without an active session.

    Every Python thread except the one that created the session has no active session. In such a thread,
    Spark reads only the default of the setting, which only reflection can change.
    """
    if not add_to_default_redaction(spark, SECRETS):
        log.warning(
            "In a thread without an active session, explain() and errors may print PEM keys and "
            "passphrases. Keep them in a file and name the file in kafka.config.file. "
            "event=secrets_not_hidden_in_threads"
        )
