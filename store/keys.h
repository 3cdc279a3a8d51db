// Every key of a job's store. Ranks write what is theirs under `<kind>/<rank>` (of_rank()).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/units.h"

namespace selmcast::keys {

// Kinds of which every rank puts one while it joins.
inline constexpr std::string_view kRoster = "roster";    ///< Who it is and where it is reached.
inline constexpr std::string_view kLinks = "links";      ///< The link table that it was given.
inline constexpr std::string_view kBytes = "params";     ///< How large its parameters are.
inline constexpr std::string_view kLayers = "layers";    ///< How large its layers are.
inline constexpr std::string_view kSetUp = "set-up";     ///< It has all that it needs to start.
inline constexpr std::string_view kSuspect = "suspect";  ///< Whom it suspects, and why.

inline constexpr std::string_view kJob = "job";      ///< Rank 0's: the job's number.
inline constexpr std::string_view kStart = "start";  ///< Empty: all go on. Else why nobody does.
inline constexpr std::string_view kSuspicion = "suspicion";  ///< Somebody suspects somebody.

/// A rank's own of a kind.
inline std::string of_rank(std::string_view kind, Rank rank) {
  return std::string(kind) + "/" + std::to_string(rank);
}
/// A kind of the agreement on a transport.
inline std::string transport(std::string_view what) {
  return "transport/" + std::string(what);
}
/// A kind, or one key, of the probing of links named `tag`.
inline std::string probe(const std::string& tag, std::string_view what) {
  return "probe/" + tag + "/" + std::string(what);
}
/// Of the view that begins `epoch`: its proposal, the kind of its acknowledgements, its commit.
inline std::string view(std::uint32_t epoch, std::string_view what) {
  return "view/" + std::to_string(epoch) + "/" + std::string(what);
}
/// The `number`th eviction.
inline std::string verdict(std::uint64_t number) {
  return "verdict/" + std::to_string(number);
}
/// The kind of the values of the `number`th mean named `tag`.
inline std::string mean(const std::string& tag, std::uint32_t number) {
  return "mean/" + tag + "/" + std::to_string(number);
}
/// Whose values count in a mean.
inline std::string counted_in(const std::string& mean) {
  return mean + "/of";
}

/// Keys that begin so are kept by the server and not copied to the clients.
inline constexpr std::string_view kResults = "result/";
/// What a rank publishes under a name, behind kResults.
inline std::string published(Rank rank, std::string_view tag) {
  return std::to_string(rank) + "/" + std::string(tag);
}
inline std::string result(Rank rank, std::string_view tag) {
  return std::string(kResults) + published(rank, tag);
}

}  // namespace selmcast::keys
