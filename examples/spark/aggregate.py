"""Aggregates samples of a topic of Kafka over windows of event time, and writes the result back into the collector.

This is the step that the Modular Stack gave to Spark: the average of what all hosts send in a second. A window has
average, minimum, maximum, sum and count of each name, by the labels that `--by` lists; hosts are merged.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 aggregate.py --topic samples --by detector

Nothing here is of Sheaf but the addresses: records are JSON (docs/reference/monitoring-protocols.md, section "Kafka"),
and results are lines of InfluxDB.
"""

import argparse
import ssl
import urllib.error
import urllib.request

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SCHEMA = "name STRING, labels MAP<STRING, STRING>, time_ms BIGINT, value DOUBLE"
# Written into every result, so that results that come back over the topic are not aggregated again.
ORIGIN = ("origin", "spark")
LINES_MAX = 5_000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Aggregate samples of a topic, and write the result into the collector")
    parser.add_argument("--brokers", default="127.0.0.1:9092", help="addresses of brokers, with commas")
    parser.add_argument("--topic", default="samples")
    parser.add_argument("--collector", default="http://127.0.0.1:9470", help="URL of the collector")
    parser.add_argument("--token-file", help="file whose first line is a token of the collector")
    parser.add_argument("--ca", help="PEM file of the CA of the collector, for https")
    parser.add_argument("--window", default="1 second")
    parser.add_argument("--late", default="5 seconds", help="how long a window waits for samples that come late")
    parser.add_argument("--by", default="", help="labels that are kept, with commas; all others are merged")
    parser.add_argument("--checkpoint", default="checkpoint", help="folder of what was read and what is open")
    parser.add_argument("--trigger", default="1 second", help="pause between two batches")
    parser.add_argument("--from", dest="begin", default="latest", choices=["latest", "earliest"], help="where a new job begins")
    parser.add_argument("--option", action="append", default=[], help="KEY=VALUE of the consumer, such as kafka.security.protocol=SASL_SSL")
    return parser.parse_args()


def samples(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """Returns each sample of the topic once, although the bus may have it twice."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.topic)
        .option("startingOffsets", options.begin)
        .option("failOnDataLoss", "true")
    )
    for option in options.option:
        key, value = option.split("=", 1)
        reader = reader.option(key, value)
    record = f.from_json(f.col("value").cast("string"), SCHEMA).alias("record")
    name, value = ORIGIN
    return (
        reader.load()
        .select(f.col("key").cast("string").alias("series"), record)
        .select("series", "record.*")
        .withColumn("at", f.timestamp_millis("time_ms"))
        .withWatermark("at", options.late)
        .dropDuplicatesWithinWatermark(["series", "time_ms"])
        # A series that has ended has a sample without a value.
        .where(f.col("value").isNotNull() & ~f.isnan("value"))
        .where(f.coalesce(f.col("labels")[name], f.lit("")) != value)
    )


def aggregated(rows: DataFrame, window: str, by: list[str]) -> DataFrame:
    kept = [f.coalesce(f.col("labels")[label], f.lit("")).alias(label) for label in by]
    return rows.groupBy(f.window("at", window), "name", *kept).agg(
        f.avg("value").alias("avg"),
        f.min("value").alias("min"),
        f.max("value").alias("max"),
        f.sum("value").alias("sum"),
        f.count("value").alias("count"),
    )


def escaped(text: str) -> str:
    for sign in "\\,= ":
        text = text.replace(sign, "\\" + sign)
    return text


def line(row, by: list[str]) -> str:
    """Returns a result as a line, at the end of its window."""
    tags = [ORIGIN, *((label, row[label]) for label in by if row[label])]
    tags = "".join(f",{escaped(label)}={escaped(value)}" for label, value in tags)
    fields = ",".join(f"{field}={float(row[field])!r}" for field in ("avg", "min", "max", "sum", "count"))
    at_ms = int(row["window"]["end"].timestamp() * 1000)
    return f"{escaped(row['name'])}_window{tags} {fields} {at_ms}"


class Collector:
    def __init__(self, options: argparse.Namespace):
        self.url = f"{options.collector}/write?precision=ms"
        self.token_file = options.token_file
        self.tls = ssl.create_default_context(cafile=options.ca) if options.ca else None

    def write(self, lines: list[str]) -> None:
        """Writes lines; an error ends the query, which goes on with this batch when it is started again."""
        request = urllib.request.Request(self.url, data="\n".join(lines).encode(), method="POST")
        if self.token_file:
            with open(self.token_file, encoding="ascii") as file:
                request.add_header("Authorization", f"Bearer {file.readline().strip()}")
        try:
            with urllib.request.urlopen(request, timeout=30, context=self.tls):
                pass
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{self.url} answers {error.code}: {error.read(300).decode(errors='replace')}") from error


def main() -> None:
    options = arguments()
    by = [label for label in options.by.split(",") if label]
    spark = SparkSession.builder.appName("sheaf-aggregate").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    collector = Collector(options)

    def give(batch: DataFrame, _: int) -> None:
        # A batch that is repeated after a failure has the same series and times, which the collector keeps once.
        lines = []
        for row in batch.toLocalIterator():
            lines.append(line(row, by))
            if len(lines) == LINES_MAX:
                collector.write(lines)
                lines = []
        if lines:
            collector.write(lines)

    query = (
        aggregated(samples(spark, options), options.window, by)
        .writeStream.outputMode("append")
        .foreachBatch(give)
        .option("checkpointLocation", options.checkpoint)
        .trigger(processingTime=options.trigger)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
