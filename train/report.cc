#include "train/report.h"

#include <bit>
#include <optional>
#include <string_view>

namespace selmcast {
namespace {

constexpr std::uint32_t kSnapshotFormat = 0x53500001U;  // the last two bytes are the version
constexpr std::uint32_t kReportFormat = 0x52500002U;

void put_double(WireWriter& out, double value) {
  out.put(std::bit_cast<std::uint64_t>(value));
}

template <class T, class Put>
void put_list(WireWriter& out, const std::vector<T>& values, Put put) {
  out.put(static_cast<std::uint32_t>(values.size()));
  for (const T& value : values) put(value);
}

/// Reads fields one after the other; a missing one leaves zero and `reader` failed.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : reader_(bytes) {}

  template <std::unsigned_integral T>
  T integer() {
    return reader_.get<T>().value_or(T{0});
  }
  double real() { return std::bit_cast<double>(integer<std::uint64_t>()); }
  std::string text() { return text_in(reader_.get_bytes().value_or(std::span<const std::byte>{})); }
  /// `bytes_each` is the least a value takes, so that a lying count reserves nothing.
  template <class T, class Get>
  std::vector<T> list(std::size_t bytes_each, Get get) {
    const std::size_t count = integer<std::uint32_t>();
    std::vector<T> values;
    if (count > reader_.remaining() / bytes_each) {
      lying_ = true;
      return values;
    }
    values.reserve(count);
    for (std::size_t i = 0; i < count; ++i) values.push_back(get());
    return values;
  }
  bool good() const noexcept { return !lying_ && reader_.finished(); }

 private:
  WireReader reader_;
  bool lying_ = false;
};

}  // namespace

std::string snapshot_tag(std::uint32_t steps) {
  return "step/" + std::to_string(steps);
}

Bytes encode(const Snapshot& snapshot) {
  WireWriter out;
  out.put(kSnapshotFormat).put(snapshot.epoch).put(snapshot.steps).put(snapshot.rounds);
  put_double(out, snapshot.seconds);
  put_list(out, snapshot.parameters,
           [&](float value) { out.put(std::bit_cast<std::uint32_t>(value)); });
  return std::move(out).take();
}

Bytes encode(const TrainingReport& report) {
  WireWriter out;
  out.put(kReportFormat).put(report.rank);
  out.put_text(report.transport).put_text(report.policy);
  put_double(out, report.seconds);
  out.put(report.steps);
  put_double(out, report.compute_seconds);
  out.put(static_cast<std::uint8_t>(report.verified ? 1 : 0));
  out.put(report.tx_bytes).put(report.tx_first_bytes).put(report.tx_repair_bytes);
  out.put(report.foreign_frames).put(report.repaired_frames);
  put_list(out, report.round_ms, [&](double value) { put_double(out, value); });
  put_list(out, report.receivers, [&](std::uint32_t value) { out.put(value); });
  put_list(out, report.rate_kbps, [&](Kbps value) { out.put(value); });
  put_list(out, report.failed_ranks, [&](Rank value) { out.put(value); });
  put_list(out, report.notices, [&](const std::string& value) { out.put_text(value); });
  return std::move(out).take();
}

Result<Snapshot> decode_snapshot(std::span<const std::byte> bytes) {
  Fields in(bytes);
  const bool format = in.integer<std::uint32_t>() == kSnapshotFormat;
  Snapshot snapshot;
  snapshot.epoch = in.integer<std::uint32_t>();
  snapshot.steps = in.integer<std::uint32_t>();
  snapshot.rounds = in.integer<std::uint32_t>();
  snapshot.seconds = in.real();
  snapshot.parameters =
      in.list<float>(4, [&] { return std::bit_cast<float>(in.integer<std::uint32_t>()); });
  if (!format || !in.good()) return failed("a snapshot of a worker's model is malformed");
  return snapshot;
}

Result<TrainingReport> decode_report(std::span<const std::byte> bytes) {
  Fields in(bytes);
  const bool format = in.integer<std::uint32_t>() == kReportFormat;
  TrainingReport report;
  report.rank = in.integer<std::uint32_t>();
  report.transport = in.text();
  report.policy = in.text();
  report.seconds = in.real();
  report.steps = in.integer<std::uint32_t>();
  report.compute_seconds = in.real();
  report.verified = in.integer<std::uint8_t>() == 1;
  report.tx_bytes = in.integer<std::uint64_t>();
  report.tx_first_bytes = in.integer<std::uint64_t>();
  report.tx_repair_bytes = in.integer<std::uint64_t>();
  report.foreign_frames = in.integer<std::uint64_t>();
  report.repaired_frames = in.integer<std::uint64_t>();
  report.round_ms = in.list<double>(8, [&] { return in.real(); });
  report.receivers = in.list<std::uint32_t>(4, [&] { return in.integer<std::uint32_t>(); });
  report.rate_kbps = in.list<Kbps>(8, [&] { return in.integer<std::uint64_t>(); });
  report.failed_ranks = in.list<Rank>(4, [&] { return in.integer<std::uint32_t>(); });
  report.notices = in.list<std::string>(4, [&] { return in.text(); });
  if (!format || !in.good()) return failed("the account of a worker's rounds is malformed");
  return report;
}

}  // namespace selmcast
