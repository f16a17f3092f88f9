"""Options that Spark itself hands on to a sink."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, StructType

from totempole.errors import ConfigurationError
from totempole.spark_table.staging import Sink

ROWS = StructType().add("payload", BinaryType())
GIVEN = {"log": "invoices", "daemons": "/run/clients.sock"}


def test_a_query_may_have_a_name_and_a_checkpoint() -> None:
    """`writeStream.queryName("invoices")` arrives as an option, in small letters."""
    Sink(GIVEN | {"queryname": "invoices", "checkpointlocation": "/tmp/checkpoint"}, ROWS)


def test_other_options_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="option querynames is not known: did you mean queryName"):
        Sink(GIVEN | {"querynames": "invoices"}, ROWS)
