// Memory that receivers read where its sender has it.
#include "transport/shm/shm_in_place.h"

#include <algorithm>
#include <optional>

#include "base/shared_memory.h"
#include "tests/unit/transport/shm_support.h"
#include "transport/shm/shm_segment.h"

namespace selmcast::test {
namespace {

constexpr std::uint32_t kHead = 40, kBody = 1000;

/// Rank 0 sends frames of a head and a body to rank 1, bodies out of shared memory.
class InPlace : public testing::Test {
 protected:
  InPlace() : a(open_test_shm(0, 2)), b(open_test_shm(1, 2)) {
    auto made = SharedMemory::allocate(20'000);
    EXPECT_TRUE(made && made->shared());
    memory = std::move(*made);
    for (std::size_t i = 0; i < memory.size(); ++i) {
      memory.data()[i] = static_cast<std::byte>(i * 31 % 251);
    }
    heads.resize(8 * kHead);
    for (std::size_t i = 0; i < heads.size(); ++i) heads[i] = static_cast<std::byte>(i % 7);
    a_to_b = connect_test(*a.transport, b.transport->address());
    b_to_a = connect_test(*b.transport, a.transport->address());
    region = registered(memory.bytes());
    heads_region = registered(heads);
  }
  Region registered(std::span<const std::byte> what) {
    auto out = a.transport->register_memory(what);
    EXPECT_TRUE(out);
    return out ? std::move(*out) : Region();
  }
  /// `frames` frames with bodies from `first` on, the last one of `last` bytes.
  void send(std::uint32_t frames, std::size_t first, std::uint32_t last, RegionId from,
            const std::byte* bodies, std::uint32_t gap = 0) {
    std::vector<LocalSlice> slices;
    for (std::uint32_t f = 0; f < frames; ++f) {
      slices.push_back({heads.data() + std::size_t{f} * kHead, kHead, heads_region.id()});
      slices.push_back(
          {bodies + first + std::size_t{f} * (kBody + gap), f + 1 == frames ? last : kBody, from});
    }
    const SendRequest request{Destination::to(a_to_b), slices, kHead + kBody, 0};
    ASSERT_EQ(a.transport->post_sends({&request, 1}).accepted, 1U);
    a.poll();
  }
  void send(std::uint32_t frames, std::size_t first = 0, std::uint32_t last = kBody) {
    send(frames, first, last, region.id(), memory.data());
  }
  /// The next receive, which the caller gives back.
  std::optional<Completion> receive(Duration limit = 10s) {
    const TimePoint deadline = SteadyClock().now() + limit;
    while (SteadyClock().now() < deadline) {
      std::array<Completion, 1> out;
      if (b.transport->poll(out) == 0) {
        b.transport->wait(2ms);
      } else if (out[0].kind == Completion::Kind::receive) {
        return out[0];
      } else {
        lost = lost || out[0].kind == Completion::Kind::lost;
        if (lost) return std::nullopt;
      }
    }
    return std::nullopt;
  }
  PostState give_back(const Completion& c) {
    const ReceiveRequest request{c.token};
    return b.transport->post_receives({&request, 1}).state;
  }
  /// Sends until rank 1 has mapped what rank 0 offers.
  void wait_until_mapped() {
    for (int i = 0; i < 2000; ++i) {
      send(1);
      const auto got = receive();
      ASSERT_TRUE(got);
      const bool in_place = got->head_bytes != 0;
      ASSERT_EQ(give_back(*got), PostState::accepted);
      if (in_place) return;
    }
    FAIL() << "never mapped";
  }

  Node a, b;
  SharedMemory memory;
  std::vector<std::byte> heads;
  Endpoint a_to_b, b_to_a;
  Region region, heads_region;
  bool lost = false;
};

TEST_F(InPlace, FramesComeWithTheirHeadsOnlyAndTheBodiesWhereTheyAre) {
  wait_until_mapped();
  const auto before = b.transport->counters();
  send(3, 4000, 600);
  const auto got = receive();
  ASSERT_TRUE(got);
  EXPECT_EQ(got->head_bytes, kHead);
  EXPECT_EQ(got->frame_bytes, kHead + kBody);
  ASSERT_EQ(got->bytes, 3 * kHead);
  ASSERT_EQ(got->body_bytes, 2 * kBody + 600);
  EXPECT_EQ(std::memcmp(got->data, heads.data(), 3 * kHead), 0);
  EXPECT_EQ(std::memcmp(got->body, memory.data() + 4000, 2600), 0);
  EXPECT_EQ(b.transport->counters().received_frames - before.received_frames, 3U);
  EXPECT_EQ(b.transport->counters().received_bytes - before.received_bytes, 3 * kHead + 2600U);
  memory.data()[4005] ^= std::byte{0xFF};
  EXPECT_EQ(got->body[5], memory.data()[4005]) << "it is the sender's memory itself";
  EXPECT_EQ(give_back(*got), PostState::accepted);
}

TEST_F(InPlace, WhatIsNotOfThatFormIsCopied) {
  wait_until_mapped();
  const std::vector<std::byte> own(5000, std::byte{7});
  const Region other = registered(own);
  send(3, 0, kBody, other.id(), own.data());
  send(3, 0, kBody, region.id(), memory.data(), 8);  // Bodies with gaps between them.
  const LocalSlice alone{memory.data(), 500, region.id()};
  EXPECT_EQ(a.send(Destination::to(a_to_b), alone).accepted, 1U);
  for (const std::uint32_t bytes : {3 * (kHead + kBody), 3 * (kHead + kBody), 500U}) {
    const auto got = receive();
    ASSERT_TRUE(got);
    EXPECT_EQ(got->head_bytes, 0U);
    EXPECT_EQ(got->bytes, bytes);
    EXPECT_EQ(give_back(*got), PostState::accepted);
  }
}

TEST_F(InPlace, AGroupIsReadInPlaceToo) {
  wait_until_mapped();
  auto joined = b.transport->join({3}, JoinAs::receiver);
  auto sending = a.transport->join({3}, JoinAs::send_only);
  ASSERT_TRUE(joined && sending);
  const LocalSlice slices[] = {{heads.data(), kHead, heads_region.id()},
                               {memory.data() + 8, kBody, region.id()}};
  const SendRequest request{Destination::to(*sending), slices, kHead + kBody, 0};
  ASSERT_EQ(a.transport->post_sends({&request, 1}).accepted, 1U);
  const auto got = receive();
  ASSERT_TRUE(got);
  ASSERT_EQ(got->body_bytes, kBody);
  EXPECT_EQ(std::memcmp(got->body, memory.data() + 8, kBody), 0);
  EXPECT_EQ(give_back(*got), PostState::accepted);
}

TEST_F(InPlace, WhatWasWithdrawnIsNotReadAnyMore) {
  wait_until_mapped();
  ReadInPlace* const ability = a.transport->abilities().in_place;
  ASSERT_NE(ability, nullptr);
  send(2);
  ability->withdraw(a_to_b.id());
  send(1, 3000);
  const auto got = receive();
  ASSERT_TRUE(got);
  ASSERT_EQ(got->body_bytes, kBody);
  EXPECT_EQ(std::memcmp(got->body, memory.data() + 3000, kBody), 0) << "only what came after";
  EXPECT_EQ(give_back(*got), PostState::accepted);
}

TEST_F(InPlace, WhoWasReadingWhatIsWithdrawnIsTold) {
  wait_until_mapped();
  send(1);
  const auto got = receive();
  ASSERT_TRUE(got);
  a.transport->abilities().in_place->withdraw(a_to_b.id());
  EXPECT_EQ(give_back(*got), PostState::broken);
  EXPECT_NE(b.transport->last_error().find("rank 0"), std::string::npos);
  send(1);
  const auto next = receive();
  ASSERT_TRUE(next);
  EXPECT_EQ(give_back(*next), PostState::accepted) << "said once";
}

TEST_F(InPlace, ClosingTheWayToAPeerWithdrawsWhatItWasSent) {
  wait_until_mapped();
  send(1);
  const auto got = receive();
  ASSERT_TRUE(got);
  send(1);
  a_to_b.reset();
  EXPECT_EQ(give_back(*got), PostState::broken);
  EXPECT_FALSE(receive(20ms));
}

// As when its process was killed: what is mapped stays.
TEST_F(InPlace, WhatIsLentOutlivesItsSender) {
  wait_until_mapped();
  send(2, 1000);
  const auto got = receive();
  ASSERT_TRUE(got);
  const std::vector<std::byte> sent(memory.data() + 1000, memory.data() + 1000 + 2 * kBody);
  region.reset();
  memory = SharedMemory();
  EXPECT_EQ(std::memcmp(got->body, sent.data(), sent.size()), 0);
}

TEST_F(InPlace, MoreMemoryThanThereAreSlotsForIsCopied) {
  wait_until_mapped();
  std::vector<SharedMemory> many;
  std::vector<Region> regions;
  for (std::uint32_t i = 0; i < shm::kExportsMax; ++i) {
    many.push_back(*SharedMemory::allocate(4096));
    regions.push_back(registered(many.back().bytes()));
  }
  // The fixture's memory has one; registered again it takes no other.
  const Region again = registered(memory.bytes().subspan(1000));
  // Longer than until the next look at peers.
  const TimePoint end = SteadyClock().now() + 20ms;
  while (SteadyClock().now() < end) b.poll();
  const auto heads_of = [&](RegionId from, const std::byte* at) {
    send(1, 0, kBody, from, at);
    const auto got = receive();
    EXPECT_TRUE(got);
    if (!got) return ~0U;
    EXPECT_EQ(give_back(*got), PostState::accepted);
    return got->head_bytes;
  };
  EXPECT_EQ(heads_of(again.id(), memory.data() + 1000), kHead);
  EXPECT_EQ(heads_of(regions[shm::kExportsMax - 2].id(), many[shm::kExportsMax - 2].data()), kHead);
  EXPECT_EQ(heads_of(regions.back().id(), many.back().data()), 0U);
}

TEST_F(InPlace, APlaceOutsideOfWhatWasMappedIsALostPeer) {
  wait_until_mapped();
  const auto target = shm::decode_address(b.transport->address());
  ASSERT_TRUE(target);
  auto own = *target;
  own.rank = 0;
  auto hostile = shm::map_peer(own, *target);
  ASSERT_TRUE(hostile);
  shm::RingProducer ring(&hostile->control(0), hostile->ring.data(), target->ring_bytes);
  const shm::PlaceHeader place{
      .offset = memory.size() - kBody + 1, .slot = 0, .head_bytes = kHead, .body_bytes = kBody};
  std::byte* const at =
      ring.begin(sizeof place + kHead, kHead + kBody, 0, shm::RecordHeader::kInPlace);
  std::memcpy(at, &place, sizeof place);
  ring.commit();
  EXPECT_FALSE(receive());
  EXPECT_TRUE(lost);
}

TEST(Imports, APlaceIsFoundWhereAllOfItIsMappedOnly) {
  auto own = shm::create_segment(7, 0, 2, shm::kRingBytesMin);
  auto memory = SharedMemory::allocate(4096);
  ASSERT_TRUE(own && memory);
  const auto exported = shm::export_memory(own->header(), memory->bytes().subspan(96));
  ASSERT_EQ(exported.slot, std::optional<std::uint32_t>(0));
  EXPECT_EQ(exported.offset, 96U);
  shm::Imports imports(2);
  shm::RingControl control;
  imports.look(own->address, own->header(), control, false);
  EXPECT_TRUE(shm::has_mapped(control, own->address.nonce, 0));
  EXPECT_FALSE(shm::has_mapped(control, own->address.nonce, 1));
  EXPECT_FALSE(shm::has_mapped(control, ~own->address.nonce, 0)) << "of another process";
  const auto found = [&](std::uint64_t offset, std::uint32_t bytes, std::uint32_t slot = 0) {
    return imports.find(0, {.offset = offset, .slot = slot, .body_bytes = bytes}) != nullptr;
  };
  EXPECT_TRUE(found(0, 4096));
  EXPECT_TRUE(found(4095, 1));
  EXPECT_FALSE(found(0, 4097));
  EXPECT_FALSE(found(4096, 1));
  EXPECT_FALSE(found(~0ULL, 1)) << "wraps around";
  EXPECT_FALSE(found(~0ULL - 7, 16));
  EXPECT_FALSE(found(0, 1, 1)) << "a slot with nothing in it";
  EXPECT_FALSE(found(0, 1, shm::kExportsMax));
  EXPECT_FALSE(found(0, 1, ~0U));
  EXPECT_EQ(imports.find(1, {.slot = 0, .body_bytes = 1}), nullptr) << "of another rank";
}

TEST(Imports, NothingIsMappedThatIsNotWhatTheExportSays) {
  auto own = shm::create_segment(7, 0, 2, shm::kRingBytesMin);
  auto memory = SharedMemory::allocate(4096);
  ASSERT_TRUE(own && memory);
  ASSERT_TRUE(shm::export_memory(own->header(), memory->bytes()).slot);
  shm::Export what = own->header().exports[0];
  EXPECT_TRUE(shm::map_export(own->address, what));
  shm::Export other = what;
  ++other.inode;
  EXPECT_FALSE(shm::map_export(own->address, other)) << "the descriptor was used again";
  other = what;
  other.bytes += 4096;
  EXPECT_FALSE(shm::map_export(own->address, other));
  memory = SharedMemory::allocate(8192);
  EXPECT_FALSE(shm::map_export(own->address, what)) << "it is gone";
}

}  // namespace
}  // namespace selmcast::test
