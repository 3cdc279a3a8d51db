// links.json: the available rates of every rank, as written by a probe and read by run and train.
//
//   {"schema": 1, "tx_kbps": [100000, ...], "rx_kbps": [200000, ...],
//    "detail": [{"rank": 0, "tx_low_kbps": ..., "latency_us": ..., "tx_loss": ..., ...}, ...]}
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/link_estimate.h"
#include "base/result.h"

namespace selmcast {

/// Rates above this are refused; with it sums over all ranks stay exact in a double.
inline constexpr Kbps kLinkKbpsMax = 1'000'000'000'000;  // 1 Pbit/s

/// Reads a links.json. Required are `tx_kbps` and `rx_kbps`, arrays of `world` integers from 0 to
/// kLinkKbpsMax (`world` 0 takes any equal length above 0); `schema`, if given, must be 1; `detail`
/// and nothing else is ignored. Only the rates of the estimates are filled in. `name` is the file
/// for error texts. Error: bad_input, one line with file, field, value and what is allowed.
Result<std::vector<LinkEstimate>> parse_links(std::string_view text, const std::string& name,
                                              std::uint32_t world);
/// Reads and parses the file at `path`.
Result<std::vector<LinkEstimate>> read_links(const std::string& path, std::uint32_t world);

/// The document for these estimates (one per rank, in order), with detail, and a final newline.
std::string links_json(std::span<const LinkEstimate> links);

}  // namespace selmcast
