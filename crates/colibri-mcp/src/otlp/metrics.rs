//! The daemon's metrics, which it serves as OpenMetrics text, as OTLP has them.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
};

use super::spans::attribute;

/// The longest time for the daemon's answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer that is read, bytes.
const MAX_TEXT: u64 = 16 << 20;

/// Names and values of a sample's labels.
type Labels = Vec<(String, String)>;

/// Reads what the daemon serves at its metrics socket.
pub(super) fn read(stream: UnixStream) -> io::Result<String> {
    stream.set_read_timeout(Some(LIMIT))?;
    // Nothing is asked, so the daemon need not wait for a request.
    stream.shutdown(Shutdown::Write)?;
    let mut text = String::new();
    stream.take(MAX_TEXT).read_to_string(&mut text)?;
    Ok(text)
}

/// One line of OpenMetrics: name, labels, value.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let at = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(at);
    let mut labels = Vec::new();
    let mut rest = rest;
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (key, value) = rest.trim_start_matches(',').split_once("=\"")?;
            let mut text = String::new();
            let mut characters = value.char_indices();
            let end = loop {
                match characters.next()? {
                    (at, '"') => break at,
                    (_, '\\') => match characters.next()?.1 {
                        'n' => text.push('\n'),
                        other => text.push(other),
                    },
                    (_, other) => text.push(other),
                }
            };
            labels.push((key.to_owned(), text));
            rest = &value[end + 1..];
        }
        rest = &rest[1..];
    }
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some((name, labels, value))
}

fn attributes(labels: &[(String, String)]) -> Vec<KeyValue> {
    labels
        .iter()
        .map(|(key, value)| attribute(key, value.as_str()))
        .collect()
}

fn point(labels: &[(String, String)], value: f64, now: u64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(labels),
        time_unix_nano: now,
        value: Some(Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

/// The metrics of a text. Lines that are none are left out.
pub(super) fn of_text(text: &str) -> Vec<Metric> {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    let mut kinds = BTreeMap::new();
    let mut points: BTreeMap<&str, Vec<NumberDataPoint>> = BTreeMap::new();
    let mut histograms: BTreeMap<&str, BTreeMap<Labels, HistogramDataPoint>> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|line| line.split_once(' '))
        {
            kinds.insert(name, kind);
        }
        let Some((name, mut labels, value)) = sample(line).filter(|_| !line.starts_with('#'))
        else {
            continue;
        };
        let part = ["_bucket", "_sum", "_count"]
            .into_iter()
            .find_map(|end| Some((name.strip_suffix(end)?, end)));
        match part.filter(|(family, _)| kinds.get(family) == Some(&"histogram")) {
            Some((family, end)) => {
                let bound = labels
                    .iter()
                    .position(|(key, _)| key == "le")
                    .map(|at| labels.remove(at).1);
                let of_family = histograms.entry(family).or_default();
                let found = of_family
                    .entry(labels.clone())
                    .or_insert_with(|| HistogramDataPoint {
                        attributes: attributes(&labels),
                        time_unix_nano: now,
                        ..HistogramDataPoint::default()
                    });
                match (end, bound) {
                    ("_sum", _) => found.sum = Some(value),
                    ("_count", _) => found.count = value as u64,
                    (_, Some(bound)) => {
                        // OpenMetrics counts all up to the bound, OTLP those above the one before.
                        let before: u64 = found.bucket_counts.iter().sum();
                        found
                            .bucket_counts
                            .push((value as u64).saturating_sub(before));
                        found
                            .explicit_bounds
                            .extend(bound.parse().ok().filter(|bound: &f64| bound.is_finite()));
                    }
                    _ => {}
                }
            }
            None => points
                .entry(name)
                .or_default()
                .push(point(&labels, value, now)),
        }
    }
    let cumulative = AggregationTemporality::Cumulative as i32;
    let numbers = points.into_iter().map(|(name, data_points)| {
        let is_counter = name
            .strip_suffix("_total")
            .is_some_and(|family| kinds.get(family) == Some(&"counter"));
        let data = match is_counter {
            true => Data::Sum(Sum {
                data_points,
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            false => Data::Gauge(Gauge { data_points }),
        };
        (name, data)
    });
    let histograms = histograms.into_iter().map(|(name, points)| {
        let data = Data::Histogram(Histogram {
            data_points: points.into_values().collect(),
            aggregation_temporality: cumulative,
        });
        (name, data)
    });
    let metric = |(name, data): (&str, Data)| Metric {
        name: name.to_owned(),
        data: Some(data),
        ..Metric::default()
    };
    numbers.chain(histograms).map(metric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_gauges_and_histograms_keep_their_kind() {
        let text = "# TYPE calls counter\ncalls_total{tool=\"a\\\"b,}\",x=\"\"} 3\n# TYPE open gauge\nopen 2\n\
            # TYPE took histogram\ntook_sum 1.5\ntook_count 3\ntook_bucket{le=\"0.1\"} 1\ntook_bucket{le=\"+Inf\"} 3\n\
            # EOF\ngarbage\nbad{x=\"\n";
        let found = of_text(text);
        let names: Vec<&str> = found.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(names, ["calls_total", "open", "took"]);
        match (&found[0].data, &found[1].data, &found[2].data) {
            (Some(Data::Sum(sum)), Some(Data::Gauge(_)), Some(Data::Histogram(histogram))) => {
                assert!(sum.is_monotonic && sum.data_points[0].attributes.len() == 2);
                assert_eq!(
                    sum.data_points[0].attributes[0],
                    attribute("tool", "a\"b,}")
                );
                let point = &histogram.data_points[0];
                assert_eq!(
                    (&point.bucket_counts[..], &point.explicit_bounds[..]),
                    (&[1, 2][..], &[0.1][..])
                );
                assert_eq!((point.count, point.sum), (3, Some(1.5)));
            }
            other => panic!("{other:?}"),
        }
    }
}
