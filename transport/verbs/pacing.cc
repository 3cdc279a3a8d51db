#include "transport/verbs/pacing.h"

#include <cerrno>

namespace selmcast::verbs {

std::optional<PacingRange> pacing_of(ibv_context* context, ibv_qp_type type) noexcept {
  ibv_device_attr_ex attributes{};
  if (ibv_query_device_ex(context, nullptr, &attributes) != 0) return {};
  const ibv_packet_pacing_caps& pacing = attributes.packet_pacing_caps;
  if ((pacing.supported_qpts & 1U << static_cast<unsigned>(type)) == 0) return {};
  return PacingRange{pacing.qp_rate_limit_min, pacing.qp_rate_limit_max};
}

int limit_rate(ibv_qp* qp, std::uint32_t kbps) noexcept {
  ibv_qp_rate_limit_attr limit{};
  limit.rate_limit = kbps;
  const int error = ibv_modify_qp_rate_limit(qp, &limit);
  return error < 0 ? errno : error;
}

}  // namespace selmcast::verbs
