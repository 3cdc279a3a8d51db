#include "plan/view.h"

#include "plan/select/rate.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kViewTag = 0x31564D53;  // "SMV1" in memory order: layout 1 of a view.
constexpr std::size_t kEntryBytes = sizeof(std::uint32_t) + 2 * sizeof(std::uint64_t);

}  // namespace

Bytes serialize(const View& view) {
  SELMCAST_CHECK(
      view.tx_kbps.size() == view.members.size() && view.rx_kbps.size() == view.members.size(),
      "a view needs one transmit and one receive rate per member");
  WireWriter out;
  out.put(kViewTag).put(view.epoch).put(view.seed);
  out.put(static_cast<std::uint32_t>(view.members.size()));
  for (std::size_t m = 0; m < view.members.size(); ++m) {
    out.put(view.members[m]).put(view.tx_kbps[m]).put(view.rx_kbps[m]);
  }
  return std::move(out).take();
}

Result<View> parse_view(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  const auto tag = in.get<std::uint32_t>();
  const auto epoch = in.get<std::uint32_t>();
  const auto seed = in.get<std::uint64_t>();
  const auto count = in.get<std::uint32_t>();
  if (!tag || !epoch || !seed || !count) {
    return bad_input("view: " + std::to_string(bytes.size()) + " bytes are too short for a header");
  }
  if (*tag != kViewTag) return bad_input("view: not a view, or one of another version");
  if (*count == 0 || *count > kMaxMembers) {
    return bad_input("view: " + std::to_string(*count) + " members, allowed are 1 to " +
                     std::to_string(kMaxMembers));
  }
  if (in.remaining() != *count * kEntryBytes) {
    return bad_input("view: " + std::to_string(in.remaining()) + " bytes of members, " +
                     std::to_string(*count) + " members take " +
                     std::to_string(*count * kEntryBytes));
  }
  View view{.epoch = *epoch, .seed = *seed, .members = {}, .tx_kbps = {}, .rx_kbps = {}};
  view.members.reserve(*count);
  view.tx_kbps.reserve(*count);
  view.rx_kbps.reserve(*count);
  for (std::uint32_t m = 0; m < *count; ++m) {
    view.members.push_back(in.get<std::uint32_t>().value());
    view.tx_kbps.push_back(in.get<std::uint64_t>().value());
    view.rx_kbps.push_back(in.get<std::uint64_t>().value());
    if (m > 0 && view.members[m] <= view.members[m - 1]) {
      return bad_input("view: member " + std::to_string(m) + " is rank " +
                       std::to_string(view.members[m]) + ", not above the one before it");
    }
    if (view.tx_kbps[m] >= kRateLimit || view.rx_kbps[m] >= kRateLimit) {
      return bad_input("view: rank " + std::to_string(view.members[m]) +
                       " has a rate of 2^53 kbit/s or more");
    }
  }
  return view;
}

}  // namespace selmcast
