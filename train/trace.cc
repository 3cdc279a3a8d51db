#include "train/trace.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "train/text_file.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kTraceFormat = 0x54520001U;  // the last two bytes are the version
constexpr std::uint32_t kNoRound = 0xFFFFFFFFU;
constexpr std::size_t kHeaderBytes = 8, kBytesPerStep = 24;
constexpr std::string_view kShortHeader = "rank,step,compute_ms";
constexpr std::string_view kFullHeader = "rank,step,compute_ms,start_ms,departed,closed";
constexpr double kComputeMsMax = 60'000.0, kStartMsMax = 1e12;

Error trace_error(std::string_view name, std::size_t line, const std::string& what) {
  return bad_input(std::string(name) + ": line " + std::to_string(line) + ": " + what);
}

std::optional<std::uint32_t> round_of(std::uint32_t word) noexcept {
  return word == kNoRound ? std::nullopt : std::optional(word);
}

/// A decimal number as C++ reads it, whatever the locale. Nothing for what is not one, the words
/// for infinity and not-a-number included.
std::optional<double> decimal(std::string_view field) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value)) {
    return {};
  }
  return value;
}

/// Reads one trace file, line after line.
class TraceReader {
 public:
  TraceReader(std::string_view name, std::uint32_t workers) : name_(name), traces_(workers) {}

  Result<std::vector<RankTrace>> read(std::string_view text) {
    for (; !text.empty(); ++line_) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view content = text.substr(0, end);
      if (content.ends_with('\r')) content.remove_suffix(1);
      if (auto ok = line_ == 1 ? header(content) : step(content); !ok) return ok.error();
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (line_ == 1) return trace_error(name_, 1, "empty; " + expected_header());
    for (std::size_t rank = 0; rank < traces_.size(); ++rank) {
      if (!traces_[rank].empty()) continue;
      return bad_input(std::string(name_) + ": no step of rank " + std::to_string(rank) +
                       "; every rank below " + std::to_string(traces_.size()) + " needs one");
    }
    return std::move(traces_);
  }

 private:
  static std::string expected_header() {
    return "the header " + std::string(kShortHeader) + " or " + std::string(kFullHeader) +
           " is needed";
  }

  Result<void> header(std::string_view content) {
    if (content == kShortHeader) {
      columns_ = 3;
    } else if (content == kFullHeader) {
      columns_ = 6;
    } else {
      return trace_error(name_, line_, quoted_field(content) + ": " + expected_header());
    }
    return {};
  }

  Error field_error(std::string_view column, std::string_view field, const std::string& allowed) {
    return trace_error(name_, line_,
                       std::string(column) + " " + quoted_field(field) + " is not " + allowed);
  }

  Result<std::uint32_t> integer(std::string_view column, std::string_view field,
                                std::uint64_t limit) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() || value >= limit) {
      return field_error(column, field, "an integer 0.." + std::to_string(limit - 1));
    }
    return static_cast<std::uint32_t>(value);
  }

  Result<double> milliseconds(std::string_view column, std::string_view field, double maximum) {
    const auto value = decimal(field);
    if (!value || *value < 0.0 || *value > maximum) {
      return field_error(column, field,
                         "a time in ms, 0.." + std::to_string(static_cast<long long>(maximum)));
    }
    return *value;
  }

  Result<std::optional<std::uint32_t>> round(std::string_view column, std::string_view field) {
    if (field.empty()) return std::optional<std::uint32_t>();
    auto value = integer(column, field, kNoRound);
    if (!value) return std::move(value).error();
    return std::optional(*value);
  }

  Result<void> step(std::string_view content) {
    std::array<std::string_view, 6> fields;
    std::size_t count = 0;
    for (std::string_view rest = content;; ++count) {
      const std::size_t comma = rest.find(',');
      if (count < fields.size()) fields.at(count) = rest.substr(0, comma);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
    if (++count != columns_) {
      return trace_error(name_, line_,
                         std::to_string(count) + " columns; " + std::to_string(columns_) +
                             " are needed, as the header says");
    }
    const auto rank = integer("rank", fields[0], traces_.size());
    if (!rank) return rank.error();
    RankTrace& trace = traces_[*rank];
    const auto number = integer("step", fields[1], kNoRound);
    if (!number) return number.error();
    if (*number != trace.size()) {
      return field_error(
          "step", fields[1],
          std::to_string(trace.size()) + ", the next of rank " + std::to_string(*rank));
    }
    TracedStep step;
    auto compute = milliseconds("compute_ms", fields[2], kComputeMsMax);
    if (!compute) return std::move(compute).error();
    step.compute_ms = *compute;
    if (columns_ == fields.size()) {
      if (auto ok = rounds(fields, step); !ok) return ok;
    }
    trace.push_back(step);
    return {};
  }

  Result<void> rounds(const std::array<std::string_view, 6>& fields, TracedStep& step) {
    const auto start = milliseconds("start_ms", fields[3], kStartMsMax);
    if (!start) return start.error();
    const auto departed = round("departed", fields[4]);
    if (!departed) return departed.error();
    const auto closed = round("closed", fields[5]);
    if (!closed) return closed.error();
    step.start_ms = *start;
    step.departed = *departed;
    step.closed = *closed;
    return {};
  }

  std::string_view name_;
  std::vector<RankTrace> traces_;
  std::size_t line_ = 1;
  std::size_t columns_ = 0;
};

}  // namespace

Bytes encode_trace(std::span<const TracedStep> steps) {
  WireWriter out;
  out.put(kTraceFormat).put(static_cast<std::uint32_t>(steps.size()));
  for (const TracedStep& step : steps) {
    out.put(std::bit_cast<std::uint64_t>(step.start_ms));
    out.put(std::bit_cast<std::uint64_t>(step.compute_ms));
    out.put(step.departed.value_or(kNoRound)).put(step.closed.value_or(kNoRound));
  }
  return std::move(out).take();
}

Result<RankTrace> decode_trace(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  const bool format = in.get<std::uint32_t>().value_or(0) == kTraceFormat;
  const std::size_t count = in.get<std::uint32_t>().value_or(0);
  if (!format || bytes.size() != kHeaderBytes + count * kBytesPerStep) {
    return failed("the trace of a worker's steps is malformed");
  }
  RankTrace steps(count);
  for (TracedStep& step : steps) {
    step.start_ms = std::bit_cast<double>(*in.get<std::uint64_t>());
    step.compute_ms = std::bit_cast<double>(*in.get<std::uint64_t>());
    step.departed = round_of(*in.get<std::uint32_t>());
    step.closed = round_of(*in.get<std::uint32_t>());
    if (!std::isfinite(step.start_ms) || !std::isfinite(step.compute_ms)) {
      return failed("the trace of a worker's steps is malformed");
    }
  }
  return steps;
}

Result<std::vector<RankTrace>> collect_traces(const std::map<std::string, Bytes>& published,
                                              std::uint32_t workers, std::span<const Rank> lost) {
  std::vector<RankTrace> traces(workers);
  for (Rank rank = 0; rank < workers; ++rank) {
    if (std::ranges::find(lost, rank) != lost.end()) continue;
    const std::string who = "rank " + std::to_string(rank) + ": ";
    const auto at = published.find(std::to_string(rank) + "/" + kTraceTag);
    if (at == published.end()) return failed(who + "ended without publishing its trace");
    auto trace = decode_trace(at->second);
    if (!trace) return failed(who + trace.error().message);
    traces[rank] = std::move(*trace);
  }
  return traces;
}

std::string trace_csv(std::span<const RankTrace> traces) {
  std::string out = std::string(kFullHeader) + "\n";
  const auto milliseconds = [](double value) {
    // Nanoseconds, with a point whatever the locale.
    std::array<char, 64> text{};
    const auto end =
        std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, 6);
    return std::string(text.data(), end.ptr);
  };
  for (std::size_t rank = 0; rank < traces.size(); ++rank) {
    for (std::size_t number = 0; number < traces[rank].size(); ++number) {
      const TracedStep& step = traces[rank][number];
      out += std::to_string(rank) + "," + std::to_string(number) + "," +
             milliseconds(step.compute_ms) + "," + milliseconds(step.start_ms) + "," +
             (step.departed ? std::to_string(*step.departed) : "") + "," +
             (step.closed ? std::to_string(*step.closed) : "") + "\n";
    }
  }
  return out;
}

Result<std::vector<RankTrace>> parse_trace(std::string_view text, std::string_view name,
                                           std::uint32_t workers) {
  return TraceReader(name, workers).read(text);
}

Result<std::vector<RankTrace>> load_trace(const std::string& path, std::uint32_t workers) {
  const auto text = read_text_file(path);
  if (!text) return text.error();
  return parse_trace(*text, path, workers);
}

}  // namespace selmcast
