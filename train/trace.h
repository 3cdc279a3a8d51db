// The trace of a run: when each rank computed each of its steps, and where rounds began and ended
// between them. Written by a run, read to run with the same compute times again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "base/wire.h"

namespace selmcast {

/// Tag of a rank's trace (Worker::publish).
inline constexpr const char* kTraceTag = "trace";

/// One local step of one rank. A round that departed after a step carries all steps since the
/// departure before, this one included; what a rank has left after its last departure travels with
/// the round after that.
struct TracedStep {
  double start_ms = 0.0;                  ///< When it began, from the start of the rank's training.
  double compute_ms = 0.0;                ///< How long it took, without any exchange.
  std::optional<std::uint32_t> departed;  ///< The round that departed right after it.
  std::optional<std::uint32_t> closed;    ///< The round that closed right after it.
};
using RankTrace = std::vector<TracedStep>;

/// Little-endian form for publishing; decoding takes hostile bytes. Errors: failed.
Bytes encode_trace(std::span<const TracedStep> steps);
Result<RankTrace> decode_trace(std::span<const std::byte> bytes);
/// Traces of all ranks from what was published, keys "RANK/trace"; that of a rank in `lost` is
/// empty. Errors: failed, naming the rank.
Result<std::vector<RankTrace>> collect_traces(const std::map<std::string, Bytes>& published,
                                              std::uint32_t workers, std::span<const Rank> lost);

/// CSV with the header `rank,step,compute_ms,start_ms,departed,closed`, a line per step, rank after
/// rank; the last two columns are empty where no round departed or closed.
std::string trace_csv(std::span<const RankTrace> traces);
/// Reads what trace_csv() writes, or the first three columns alone under their header. Lines of
/// different ranks may be mixed, those of one rank count steps from 0. Every rank below `workers`
/// has a step at least. Errors (bad_input): name, line, column, what was found, what is allowed.
Result<std::vector<RankTrace>> parse_trace(std::string_view text, std::string_view name,
                                           std::uint32_t workers);
/// parse_trace() of a file of at most 64 MiB.
Result<std::vector<RankTrace>> load_trace(const std::string& path, std::uint32_t workers);

}  // namespace selmcast
