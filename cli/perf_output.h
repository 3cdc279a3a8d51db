// What `selmcast perf` found, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/perf/perf.h"

namespace selmcast {

/// How the command was called, for its output.
enum class PerfRole { server, client, sender, receiver };

/// Rates of reliable operations are the client's, of datagrams the slowest receiver's. Fields: see
/// cli/README.md.
nlohmann::ordered_json perf_json(const perf::Settings& settings, PerfRole role,
                                 const perf::Outcome& outcome);

/// A few lines for a person, out of perf_json()'s document.
std::string perf_text(const nlohmann::ordered_json& document);

/// Counters that moved while nothing should have been lost, of any end and repeat: "client:
/// rcvd_seq_err +3". Empty: the figure stands.
std::string trouble_of(const perf::Settings& settings, const perf::Outcome& outcome);

}  // namespace selmcast
