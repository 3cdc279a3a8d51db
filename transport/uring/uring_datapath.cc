// Posting, reaping and idling of the UDP backend. Nothing here allocates, locks, throws or logs.
#include <arpa/inet.h>
#include <netinet/udp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "transport/uring/uring_backend.h"

namespace selmcast::uring {
namespace {

enum class Operation : std::uint8_t { send, receive, wake, cancel };

constexpr std::uint64_t tag(Operation operation, std::uint64_t index) noexcept {
  return (static_cast<std::uint64_t>(operation) << 56U) | index;
}
constexpr Operation operation_of(std::uint64_t tagged) noexcept {
  return static_cast<Operation>(tagged >> 56U);
}
constexpr std::uint64_t index_of(std::uint64_t tagged) noexcept {
  return tagged & ((std::uint64_t{1} << 56U) - 1);
}

// Entries handled by one poll() that yield no completion to its caller, at most; so that foreign
// traffic cannot keep it from returning.
constexpr std::uint32_t kReapMost = 1024;
// Tries of one request before a shortage counts as a failure; each is at least a system call long.
constexpr std::uint32_t kSendAttempts = 1000;
// Failures of receives in a row before the transport is given up, lest it retries for ever.
constexpr std::uint32_t kReceiveFailuresMost = 1000;

// Nothing was sent, and trying again may help: no memory or queue room, an ICMP answer to an
// earlier datagram that the kernel reports once, or the thread that had submitted it ended.
constexpr bool is_transient(int error) noexcept {
  return error == EAGAIN || error == ENOBUFS || error == ENOMEM || error == EINTR ||
         error == ECONNREFUSED || error == ECANCELED;
}

}  // namespace

void UringTransport::adopt_thread() noexcept {
  const pthread_t self = pthread_self();
  if (driven_ && pthread_equal(driver_, self) != 0) [[likely]]
    return;
  if (driven_) {
    // The kernel runs a receive's work in the thread that submitted it: end those of the old
    // driver, and each is armed again from here when its end is reaped.
    const auto cancel = [this](std::uint64_t tagged) {
      io_uring_sqe* const entry = next_entry();
      if (entry == nullptr) return;
      io_uring_prep_cancel64(entry, tagged, 0);
      io_uring_sqe_set_data64(entry, tag(Operation::cancel, 0));
    };
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      if (sockets_[i].armed) cancel(tag(Operation::receive, i));
    }
    if (wake_armed_) cancel(tag(Operation::wake, 0));
  }
  driver_ = self;
  driven_ = true;
  arm();
  submit();
}

io_uring_sqe* UringTransport::next_entry() noexcept {
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr) [[unlikely]] {
    submit();
    entry = io_uring_get_sqe(&ring_);
  }
  return entry;
}

void UringTransport::submit() noexcept {
  if (broken_ || io_uring_sq_ready(&ring_) == 0) return;
  const int result = io_uring_submit(&ring_);
  // Entries that the kernel did not take for want of memory stay queued for the next call.
  if (result < 0 && !is_transient(-result) && result != -EBUSY) break_down(-result);
}

void UringTransport::break_down(int error) noexcept {
  broken_ = true;
  retry_ = 0;
  failure_ = {.error = error, .during = Failure::During::submit};
  sends_.for_each([](SendSlot& slot) {
    if (!slot.done) slot.status = Status::failed;
    slot.done = true;
  });
}

void UringTransport::arm() noexcept {
  unarmed_ = false;
  if (!wake_armed_) {
    if (io_uring_sqe* const entry = next_entry(); entry != nullptr) {
      io_uring_prep_read(entry, wake_fd_.get(), &wake_count_, sizeof wake_count_, 0);
      io_uring_sqe_set_data64(entry, tag(Operation::wake, 0));
      wake_armed_ = true;
    }
  }
  unarmed_ = !wake_armed_;
  for (std::size_t i = 0; i < sockets_.size(); ++i) {
    if (sockets_[i].armed) continue;
    // With every buffer lent it would only fail; post_receives() comes back here.
    io_uring_sqe* const entry = buffers_->free_buffers() == 0 ? nullptr : next_entry();
    if (entry == nullptr) {
      unarmed_ = true;
      return;
    }
    io_uring_prep_recvmsg_multishot(entry, sockets_[i].fd.get(), buffers_->message(), 0);
    entry->flags |= IOSQE_BUFFER_SELECT;
    entry->buf_group = ReceiveBuffers::kGroup;
    io_uring_sqe_set_data64(entry, tag(Operation::receive, i));
    sockets_[i].armed = true;
  }
}

Status UringTransport::prepare(const SendRequest& request, SendSlot& slot) noexcept {
  const UdpTarget* target = nullptr;
  if (request.destination.kind == Destination::Kind::endpoint) {
    target = endpoints_.find(request.destination.id);
  } else if (const auto* const member = members_.find(request.destination.id); member != nullptr) {
    target = &member->target;
  }
  if (target == nullptr) return Status::closed;
  std::size_t parts = 0;
  const Status status = measure(
      request, capabilities_, [this](RegionId id) { return regions_.find(id); },
      [&](const LocalSlice& slice) {
        slot.parts[parts++] = {.iov_base = const_cast<std::byte*>(slice.data),
                               .iov_len = slice.bytes};
      },
      slot.shape);
  if (status != Status::ok) return status;
  slot.message.msg_iov = slot.parts.data();
  slot.message.msg_iovlen = parts;
  slot.to.sin_family = AF_INET;
  slot.to.sin_addr.s_addr = htonl(target->ipv4);
  slot.to.sin_port = htons(target->port);
  slot.message.msg_name = &slot.to;
  slot.message.msg_namelen = sizeof slot.to;
  slot.message.msg_control = nullptr;
  slot.message.msg_controllen = 0;
  if (slot.shape.frames > 1) {
    const auto segment = static_cast<std::uint16_t>(slot.shape.frame_bytes);
    auto* const control = reinterpret_cast<cmsghdr*>(slot.control.data());
    control->cmsg_level = SOL_UDP;
    control->cmsg_type = UDP_SEGMENT;
    control->cmsg_len = CMSG_LEN(sizeof segment);
    std::memcpy(CMSG_DATA(control), &segment, sizeof segment);
    slot.message.msg_control = control;
    slot.message.msg_controllen = slot.control.size();
  }
  return Status::ok;
}

bool UringTransport::submit_slot(std::uint32_t place) noexcept {
  io_uring_sqe* const entry = next_entry();
  if (entry == nullptr) return false;
  io_uring_prep_sendmsg(entry, sockets_.front().fd.get(), &sends_.in_place(place).message, 0);
  io_uring_sqe_set_data64(entry, tag(Operation::send, place));
  return true;
}

PostOutcome UringTransport::post_sends(std::span<const SendRequest> requests) noexcept {
  adopt_thread();
  PostOutcome out;
  for (const SendRequest& request : requests) {
    if (broken_) [[unlikely]]
      break;
    if (sends_.full()) {
      out.state = PostState::backpressure;
      break;
    }
    const std::uint32_t place = sends_.next_place();
    SendSlot& slot = sends_.next();
    slot.user = request.user;
    slot.attempts = 0;
    slot.shape = {};
    slot.status = prepare(request, slot);
    // A request without a byte sends nothing and has thereby succeeded.
    slot.done = slot.status != Status::ok || slot.shape.frames == 0;
    if (!slot.done && !submit_slot(place)) retry_ |= std::uint64_t{1} << place;
    sends_.post();
    ++out.accepted;
  }
  submit();
  if (broken_) [[unlikely]]
    out.state = PostState::broken;
  return out;
}

PostOutcome UringTransport::post_receives(std::span<const ReceiveRequest> requests) noexcept {
  for (const ReceiveRequest& request : requests) {
    SELMCAST_CHECK(buffers_->is_lent(request.token),
                   "post_receives: the token names a buffer that is not lent");
    buffers_->give_back(request.token);
  }
  if (unarmed_) {
    adopt_thread();
    arm();
    submit();
  }
  return {.accepted = static_cast<std::uint32_t>(requests.size()),
          .state = broken_ ? PostState::broken : PostState::accepted};
}

void UringTransport::send_ended(std::uint32_t place, int result) noexcept {
  SendSlot& slot = sends_.in_place(place);
  if (slot.done) return;  // given up by break_down()
  if (result < 0 && is_transient(-result) && ++slot.attempts < kSendAttempts) {
    retry_ |= std::uint64_t{1} << place;
    return;
  }
  slot.done = true;
  if (result >= 0) {
    counters_.sent_frames += slot.shape.frames;
    counters_.sent_bytes += slot.shape.bytes;
    return;
  }
  slot.status = Status::failed;
  failure_ = {.error = -result,
              .during = Failure::During::send,
              .to = {.ipv4 = ntohl(slot.to.sin_addr.s_addr), .port = ntohs(slot.to.sin_port)},
              .bytes = slot.shape.bytes,
              .frame_bytes = slot.shape.frame_bytes};
}

bool UringTransport::is_member(std::uint32_t ipv4) const noexcept {
  const auto index = group_index(job_, ipv4);
  return index && ((joined_bits_[*index / 64] >> (*index % 64)) & 1U) != 0;
}

bool UringTransport::deliver(std::size_t socket, std::uint32_t token, std::uint32_t bytes,
                             Completion& out) noexcept {
  const Datagrams got = buffers_->take(token, bytes);
  // Group sockets also get what was queued before a leave, and unicast to their port.
  const bool foreign = socket != 0 && !is_member(got.destination);
  if (!got.whole || foreign) {
    if (!foreign) ++counters_.dropped_frames;
    buffers_->give_back(token);
    return false;
  }
  counters_.received_frames += frames_in(got.bytes, got.frame_bytes);
  counters_.received_bytes += got.bytes;
  out = {.kind = Completion::Kind::receive,
         .status = Status::ok,
         .token = token,
         .bytes = got.bytes,
         .frame_bytes = got.frame_bytes,
         .data = got.data,
         .user = 0};
  return true;
}

bool UringTransport::receive_ended(std::size_t socket, const io_uring_cqe& entry,
                                   Completion& out) noexcept {
  if ((entry.flags & IORING_CQE_F_MORE) == 0) {
    sockets_[socket].armed = false;
    unarmed_ = true;
  }
  if (entry.res >= 0 && (entry.flags & IORING_CQE_F_BUFFER) != 0) {
    receive_failures_ = 0;
    return deliver(socket, entry.flags >> IORING_CQE_BUFFER_SHIFT,
                   static_cast<std::uint32_t>(entry.res), out);
  }
  if (entry.res < 0 && entry.res != -ENOBUFS && entry.res != -ECANCELED) {
    failure_ = {.error = -entry.res, .during = Failure::During::receive};
    if (entry.res == -EINVAL || ++receive_failures_ > kReceiveFailuresMost) broken_ = true;
  }
  return false;
}

std::size_t UringTransport::reap(std::span<Completion> out) noexcept {
  std::size_t filled = 0;
  std::array<io_uring_cqe*, 32> entries;
  for (std::uint32_t handled = 0; filled < out.size() && handled < kReapMost;) {
    // Enters the kernel only when the ring is empty and flags that there is work to turn in.
    const unsigned count = io_uring_peek_batch_cqe(&ring_, entries.data(), entries.size());
    if (count == 0) break;
    unsigned used = 0;
    for (; used < count && filled < out.size(); ++used) {
      const io_uring_cqe& entry = *entries[used];
      const std::uint64_t index = index_of(entry.user_data);
      switch (operation_of(entry.user_data)) {
        case Operation::send:
          send_ended(static_cast<std::uint32_t>(index), entry.res);
          break;
        case Operation::receive:
          if (receive_ended(index, entry, out[filled])) ++filled;
          break;
        case Operation::wake:
          wake_armed_ = false;
          unarmed_ = true;
          woken_ = woken_ || entry.res > 0;
          break;
        case Operation::cancel:
          break;
      }
    }
    io_uring_cq_advance(&ring_, used);
    handled += used;
  }
  return filled;
}

std::size_t UringTransport::finished_sends(std::span<Completion> out) noexcept {
  return sends_.complete(out, [](const SendSlot& slot) { return slot.done; });
}

std::size_t UringTransport::poll(std::span<Completion> out) noexcept {
  adopt_thread();
  std::size_t filled = finished_sends(out);
  filled += reap(out.subspan(filled));
  filled += finished_sends(out.subspan(filled));
  keep_going();
  return filled;
}

void UringTransport::keep_going() noexcept {
  if (broken_) [[unlikely]]
    return;
  for (std::uint64_t left = std::exchange(retry_, 0); left != 0; left &= left - 1) {
    const auto index = static_cast<std::uint32_t>(std::countr_zero(left));
    if (!submit_slot(index)) retry_ |= std::uint64_t{1} << index;
  }
  if (unarmed_) arm();
  submit();
}

void UringTransport::take_wake_entry() noexcept {
  io_uring_cqe* entry = nullptr;
  if (io_uring_cq_ready(&ring_) == 0 || io_uring_peek_cqe(&ring_, &entry) != 0) return;
  if (operation_of(entry->user_data) != Operation::wake || entry->res <= 0) return;
  io_uring_cqe_seen(&ring_, entry);
  wake_armed_ = false;
  unarmed_ = true;
}

void UringTransport::wait(Duration at_most) noexcept {
  adopt_thread();
  keep_going();
  if (std::exchange(woken_, false)) {
    take_wake_entry();  // a second wake-up meanwhile: one wait() ended for both
    return;
  }
  const bool finished = !sends_.empty() && sends_.oldest().done;
  const Duration limit = std::clamp(at_most, Duration{}, Duration(std::chrono::hours(1)));
  if (broken_) [[unlikely]] {
    pollfd wake_up{.fd = wake_fd_.get(), .events = POLLIN, .revents = 0};
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
    if (!finished) ::poll(&wake_up, 1, static_cast<int>(milliseconds));
    return;
  }
  if (!finished && io_uring_cq_ready(&ring_) == 0 && limit > Duration{}) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(limit);
    __kernel_timespec timeout{};
    timeout.tv_sec = seconds.count();
    timeout.tv_nsec = (limit - seconds).count();
    io_uring_cqe* entry = nullptr;
    io_uring_submit_and_wait_timeout(&ring_, &entry, 1, &timeout, nullptr);
  }
  // A wake-up that ended this wait must not end the next one too.
  take_wake_entry();
}

void UringTransport::wake() noexcept {
  ring_wake_event(wake_fd_);
}

}  // namespace selmcast::uring
