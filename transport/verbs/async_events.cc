#include "transport/verbs/async_events.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/quiet_thread.h"

namespace selmcast::verbs {
namespace {

/// Only a subnet manager ends memberships.
void regroup(Rail& rail) noexcept {
  if (rail.port().kind != GidKind::infiniband) return;
  rail.regroup.store(true, std::memory_order_release);
}

}  // namespace

Result<std::unique_ptr<AsyncEvents>> AsyncEvents::start(std::vector<Rail*> rails,
                                                        std::function<void()> changed) {
  UniqueFd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop) return failed(std::string("eventfd: ") + std::strerror(errno));
  for (const Rail* rail : rails) {
    const int fd = rail->context()->async_fd;
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
      return failed(std::string("verbs: events of ") + rail->port().device +
                    " cannot be read: " + std::strerror(errno));
    }
  }
  std::unique_ptr<AsyncEvents> out(
      new AsyncEvents(std::move(rails), std::move(changed), std::move(stop)));
  const int error = start_quiet(out->thread_, [self = out.get()] { self->run(); });
  if (error == 0) return out;
  return failed("verbs: " + no_thread("for the devices' events", error));
}

AsyncEvents::AsyncEvents(std::vector<Rail*> rails, std::function<void()> changed, UniqueFd stop)
    : rails_(std::move(rails)), changed_(std::move(changed)), stop_(std::move(stop)) {
  for (const Rail* rail : rails_) removals_.push_back(RemovalWatch::make(rail->port()));
}

AsyncEvents::~AsyncEvents() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(stop_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void AsyncEvents::run() {
  // Of each rail its events and its removal, then the stop.
  std::vector<pollfd> ready(2 * rails_.size() + 1);
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    ready[2 * r] = {.fd = rails_[r]->context()->async_fd, .events = POLLIN, .revents = 0};
    const int removal = removals_[r] == nullptr ? -1 : removals_[r]->fd();
    ready[2 * r + 1] = {.fd = removal, .events = POLLIN, .revents = 0};
  }
  ready.back() = {.fd = stop_.get(), .events = POLLIN, .revents = 0};
  for (;;) {
    const int count = ::poll(ready.data(), static_cast<nfds_t>(ready.size()), -1);
    if (count < 0 && errno != EINTR) return;
    if (ready.back().revents != 0) return;
    for (std::size_t i = 0; i + 1 < ready.size(); ++i) {
      if (ready[i].revents == 0) continue;
      Rail& rail = *rails_[i / 2];
      const bool readable = (ready[i].revents & POLLIN) != 0;
      const bool ends = readable && (i % 2 == 0 ? !take(rail) : removals_[i / 2]->removed());
      // A descriptor that only errs would keep the loop busy.
      if (!ends && (ready[i].revents & (POLLERR | POLLHUP | POLLNVAL)) == 0) continue;
      ready[i].fd = -1;
      rail.gone.store(true, std::memory_order_release);
      changed_();
    }
  }
}

bool AsyncEvents::take(Rail& rail) {
  ibv_async_event event{};
  while (ibv_get_async_event(rail.context(), &event) == 0) {
    // Means something for events of ports only.
    const bool own_port = event.element.port_num == rail.port().port;
    switch (event.event_type) {
      case IBV_EVENT_PORT_ERR:
        if (own_port) rail.up.store(false, std::memory_order_release);
        break;
      case IBV_EVENT_PORT_ACTIVE:
        if (own_port) {
          rail.up.store(true, std::memory_order_release);
          regroup(rail);
        }
        break;
      case IBV_EVENT_DEVICE_FATAL:
      case IBV_EVENT_CQ_ERR:
      case IBV_EVENT_SRQ_ERR:
        rail.gone.store(true, std::memory_order_release);
        break;
      case IBV_EVENT_GID_CHANGE:
      case IBV_EVENT_LID_CHANGE:
      case IBV_EVENT_SM_CHANGE:
      case IBV_EVENT_CLIENT_REREGISTER:
        // The driver looks: it alone uses the device beside this thread.
        if (own_port) {
          rail.renamed.store(true, std::memory_order_release);
          regroup(rail);
        }
        break;
      case IBV_EVENT_PKEY_CHANGE:
        if (own_port) regroup(rail);
        break;
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
        // One that shares its receive queue need not show it in any completion.
        rail.suspect.store(true, std::memory_order_release);
        break;
      default:
        break;
    }
    ibv_ack_async_event(&event);
    changed_();
  }
  return errno == EAGAIN || errno == EINTR;
}

}  // namespace selmcast::verbs
