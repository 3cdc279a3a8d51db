// Move-only owners of libibverbs and librdmacm objects: what is made is undone in reverse order.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>

namespace selmcast::verbs {

/// Calls `undo` on what it deletes. A refusal while something is taken down (busy, device gone)
/// leaves nothing to be done about it: the kernel frees the rest with the process.
template <auto undo>
struct Undo {
  template <class T>
  void operator()(T* object) const noexcept {
    static_cast<void>(undo(object));
  }
};

template <class T, auto undo>
using Handle = std::unique_ptr<T, Undo<undo>>;

using Context = Handle<ibv_context, ibv_close_device>;
using ProtectionDomain = Handle<ibv_pd, ibv_dealloc_pd>;
using CompletionChannel = Handle<ibv_comp_channel, ibv_destroy_comp_channel>;
using CompletionQueue = Handle<ibv_cq, ibv_destroy_cq>;
using SharedReceiveQueue = Handle<ibv_srq, ibv_destroy_srq>;
using QueuePair = Handle<ibv_qp, ibv_destroy_qp>;
using MemoryRegion = Handle<ibv_mr, ibv_dereg_mr>;
using AddressHandle = Handle<ibv_ah, ibv_destroy_ah>;
using EventChannel = Handle<rdma_event_channel, rdma_destroy_event_channel>;
using CmId = Handle<rdma_cm_id, rdma_destroy_id>;

}  // namespace selmcast::verbs
