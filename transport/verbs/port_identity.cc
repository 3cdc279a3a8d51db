#include "transport/verbs/port_identity.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace selmcast::verbs {
namespace {

constexpr int kGidsMost = 256;  // address vectors name a GID by 8 bits

bool equal(const ibv_gid& a, const ibv_gid& b) noexcept {
  return std::memcmp(a.raw, b.raw, sizeof a.raw) == 0;
}

/// 0 or an errno; ENODATA: the index is empty.
int entry_at(ibv_context* context, const DevicePort& port, std::uint32_t index,
             ibv_gid_entry& out) noexcept {
  const int state = ibv_query_gid_ex(context, port.port, index, &out, 0);
  return state < 0 ? errno : state;
}

}  // namespace

bool PortIdentity::look(ibv_context* context, const DevicePort& port) noexcept {
  ibv_port_attr attributes{};
  if (ibv_query_port(context, port.port, &attributes) != 0) return false;
  ibv_gid_entry entry{};
  const int error = entry_at(context, port, port.gid_index, entry);
  if (error != 0 && error != ENODATA) return false;
  const bool infiniband = port.kind == GidKind::infiniband;
  moved_to_.reset();
  if (error == 0 && equal(entry.gid, port.gid) &&
      (infiniband || entry.gid_type == IBV_GID_TYPE_ROCE_V2)) {
    const bool other = infiniband && attributes.lid != port.lid;
    difference_ = other ? Difference::lid_other : Difference::none;
    lid_ = attributes.lid;
    return true;
  }
  difference_ = error != 0 ? Difference::gid_gone : Difference::gid_other;
  gid_ = entry.gid;
  if (infiniband) return true;
  for (int i = 0; i < std::min(attributes.gid_tbl_len, kGidsMost) && !moved_to_; ++i) {
    const auto index = static_cast<std::uint32_t>(i);
    if (entry_at(context, port, index, entry) != 0 || !equal(entry.gid, port.gid)) continue;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) moved_to_ = index;
  }
  return true;
}

std::string PortIdentity::text(const DevicePort& port) const {
  if (same()) return {};
  const std::string where = "verbs: " + port.device + " port " + std::to_string(port.port) + ": ";
  if (difference_ == Difference::lid_other) {
    return where + "LID " + std::to_string(port.lid) + " has become " + std::to_string(lid_) +
           " since set-up: peers do not reach this rank any more; restart the job, and see the "
           "subnet manager's log for why it reassigned LIDs";
  }
  std::string out = where + "GID index " + std::to_string(port.gid_index) + " was " +
                    gid_text(port.gid) + " at set-up and is " +
                    (difference_ == Difference::gid_gone ? "empty" : gid_text(gid_)) + " now";
  if (moved_to_) {
    return out + "; the GID is at index " + std::to_string(*moved_to_) +
           ", and this rank goes on: if peers do not hear it, restart the job";
  }
  out += ": peers do not reach this rank any more; ";
  if (port.kind == GidKind::infiniband) return out + "see the subnet manager's log";
  return out + "give " + (port.interface_name.empty() ? "its interface" : port.interface_name) +
         " the address back, or restart the job";
}

}  // namespace selmcast::verbs
