// Real backends of this host, several ranks in one process, as backends of the conformance suite.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/harness.h"
#include "transport/backends/open.h"

namespace selmcast::conformance {

/// Backend `name` of open_transport(); rank r opens at places[r % places.size()] (what names a
/// device; job, rank and world are filled in).
Backend host_backend(const std::string& name, bool notices_death,
                     std::vector<TransportConfig> places);

}  // namespace selmcast::conformance
