#include "transport/verbs/explain.h"

#include <cerrno>
#include <cstring>

namespace selmcast::verbs {

std::string remedy_of_errno(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return "; give this user access to /dev/infiniband (group rdma, or run as root)";
    case ENOMEM:
      return "; raise the locked-memory limit (ulimit -l unlimited, or LimitMEMLOCK=infinity in "
             "the service), or register less";
    case EMFILE:
    case ENFILE:
      return "; raise the limit of open files (ulimit -n)";
    case ENOSPC:
    case EAGAIN:
      return "; the device is out of such objects: close other programs that use it";
    case ENODEV:
    case EIO:
      return "; the device is gone or being reset: see dmesg";
    case ETIMEDOUT:
      return "; the other end does not answer: check the route, the MTU on both ends and that UDP "
             "port 4791 is not filtered";
    case EHOSTUNREACH:
    case ENETUNREACH:
      return "; there is no route from this device to that address: ip route get ADDRESS";
    case ENETRESET:
      return "; the port was down or the subnet manager started anew: asked again until it answers";
    case EKEYREJECTED:
      return "; the group exists with another Q_Key: have the subnet manager remove it";
    case EADDRNOTAVAIL:
      return "; no RDMA device has that address: see `selmcast doctor`";
    case EINVAL:
      return "; the device refuses these values: the GID may have changed, or a size is beyond "
             "what it can do (ibv_devinfo -v)";
    default:
      return {};
  }
}

Error set_up_error(const std::string& what, const std::string& where, int error) {
  std::string text = "verbs: " + what + " on " + where + " failed: " + std::strerror(error) +
                     remedy_of_errno(error);
  const bool lacks = error == EPERM || error == EACCES || error == ENOMEM || error == EMFILE ||
                     error == ENFILE || error == ENOSYS || error == EOPNOTSUPP;
  return lacks ? unavailable(std::move(text)) : failed(std::move(text));
}

std::string explain_status(ibv_wc_status status) {
  const std::string name = ibv_wc_status_str(status);
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return name +
             ": the peer does not acknowledge; it died, its link is down, UDP port 4791 is "
             "filtered, or the path MTU is smaller than the queue pair's";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return name + ": the peer has no receive posted; it is overloaded or posts too few";
    case IBV_WC_REM_ACCESS_ERR:
      return name + ": the peer's memory region was deregistered, is smaller, or forbids this";
    case IBV_WC_REM_INV_REQ_ERR:
      return name +
             ": the peer refuses the request (opcode, length, or its receive buffer is "
             "shorter than the message)";
    case IBV_WC_REM_OP_ERR:
      return name + ": the peer's device failed; see its kernel log";
    case IBV_WC_LOC_LEN_ERR:
      return name +
             ": a message is longer than the path MTU or the receive buffer; MTUs of the "
             "two ends differ";
    case IBV_WC_LOC_PROT_ERR:
      return name + ": memory of the request is not registered here (any more)";
    case IBV_WC_LOC_QP_OP_ERR:
      return name +
             ": this device could not send: its link is down, its address changed, or "
             "there is no route to the peer";
    case IBV_WC_WR_FLUSH_ERR:
      return name + ": the queue pair went into error before this request's turn";
    case IBV_WC_FATAL_ERR:
      return name + ": the device is broken or was removed; see dmesg";
    default:
      return name;
  }
}

}  // namespace selmcast::verbs
