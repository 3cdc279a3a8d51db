// What a build without libibverbs has in the place of the measurements.
#include "tools/perf/perf.h"

namespace selmcast::perf {
namespace {

Error absent() {
  return unavailable(
      "perf: this build was made without RDMA devices; to have it, install libibverbs and "
      "librdmacm, and configure with -D SELMCAST_VERBS=ON");
}

}  // namespace

Result<Outcome> run_client(const Settings&, const std::vector<std::string>&, const OnRepeat&) {
  return absent();
}

Result<Outcome> run_server(const Settings&) {
  return absent();
}

Result<Outcome> send_alone(const Settings&) {
  return absent();
}

Result<Outcome> receive_alone(const Settings&) {
  return absent();
}

}  // namespace selmcast::perf
