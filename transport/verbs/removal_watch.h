// Hears that a device is being removed. Drivers without support for it (rxe) keep a removed device
// alive until its last user has closed it, and say so through the connection manager only.
#pragma once

#include <memory>

#include "transport/verbs/device_port.h"

namespace selmcast::verbs {

class RemovalWatch {
 public:
  /// Null where the connection manager has no way to the port: it then goes unheard.
  static std::unique_ptr<RemovalWatch> make(const DevicePort& port);

  /// Readable when removed() has something to look at.
  int fd() const noexcept { return channel_->fd; }
  /// Takes what came; whether the device is to go. Does not block.
  bool removed() noexcept;

 private:
  RemovalWatch(EventChannel channel, CmId id) noexcept
      : channel_(std::move(channel)), id_(std::move(id)) {}

  EventChannel channel_;
  CmId id_;
};

}  // namespace selmcast::verbs
