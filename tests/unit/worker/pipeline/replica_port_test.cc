// Ends of an edge between replicas, each against the other's frames and against hostile ones.
#include "worker/pipeline/replica_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "worker/pipeline/tensor_assembler.h"

namespace longhaul::worker {
namespace {

using ::testing::HasSubstr;

constexpr size_t kHeader = wire::kTensorHeaderBytes;
constexpr uint32_t kMostChunks = 32;

struct Frame {
  transport::Lane lane;
  std::vector<std::byte> bytes;
};

// Keeps frames; who sent them is told later that they were taken.
class HeldLink final : public transport::Link {
 public:
  const transport::LinkKey& key() const override { return key_; }
  void Send(transport::Lane lane, const transport::FrameView& frame, SendDone done) override {
    std::vector<std::byte> bytes(frame.header.begin(), frame.header.end());
    bytes.insert(bytes.end(), frame.body.begin(), frame.body.end());
    frames.push_back({lane, std::move(bytes)});
    done_.push_back(std::move(done));
  }
  void Close(Deadline) override {}
  void GrowCredits(uint32_t) override {}
  transport::LinkStats stats() const override { return {}; }
  std::string Describe() const override { return "held"; }
  void TakeAll() {
    for (SendDone& done : std::exchange(done_, {})) done(absl::OkStatus());
  }
  // Whoever still waits to be told is not told.
  void Forget() { done_.clear(); }
  std::vector<Frame> frames;

 private:
  transport::LinkKey key_{RunId("run"), Stamp(1), EdgeId(3)};
  std::vector<SendDone> done_;
};

struct End {
  End(uint32_t own, uint32_t peer, uint64_t epoch = 1)
      : port(ReplicaPort::Create({.stamp = Stamp(epoch),
                                  .epoch = Epoch(epoch),
                                  .edge = EdgeId(3),
                                  .own = {.replica = own, .stage = 1},
                                  .peer = {.replica = peer, .stage = 1},
                                  .most_chunks = kMostChunks,
                                  .turns = turns,
                                  .most_message_bytes = 1 << 20,
                                  .traffic = &traffic},
                                 events)) {
    port->Attach(link);
  }
  ~End() { link->Forget(); }  // the port is kept by the link's callbacks, and keeps the link
  // The events that the port makes of a frame.
  std::deque<PipelineEvent> Hear(const Frame& frame) {
    port->OnFrame(frame.lane, frame.bytes);
    return events->TakeAll();
  }
  std::string Refusal(const Frame& frame) {
    for (const PipelineEvent& event : Hear(frame)) {
      if (const auto* failed = std::get_if<Failed>(&event)) {
        return std::string(Message(failed->reason));
      }
    }
    return "none";
  }
  TrafficWatch traffic;
  std::shared_ptr<WireTurns> turns = std::make_shared<WireTurns>();
  std::shared_ptr<EventQueue> events = std::make_shared<EventQueue>();
  std::shared_ptr<HeldLink> link = std::make_shared<HeldLink>();
  std::shared_ptr<ReplicaPort> port;
};

std::vector<std::byte> Bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t k = 0; k < count; ++k) bytes[k] = static_cast<std::byte>(k * 31 + k / 251);
  return bytes;
}

TEST(ReplicaPort, MessagesArriveWholeAndInOrder) {
  End one(0, 1), other(1, 0);
  const size_t sizes[] = {1, 40, 65'440, 65'441, 300'000};
  for (const size_t size : sizes) one.port->Send(Step(7), Bytes(size));
  std::vector<std::vector<std::byte>> came;
  for (const Frame& frame : one.link->frames) {
    for (PipelineEvent& event : other.Hear(frame)) {
      auto& said = std::get<ReplicaSaid>(event);
      EXPECT_EQ(said.replica, 0u);
      came.push_back(std::move(said.message));
    }
  }
  ASSERT_EQ(came.size(), std::size(sizes));
  for (size_t k = 0; k < came.size(); ++k) EXPECT_EQ(came[k], Bytes(sizes[k]));
  const PortUse received = other.port->TakeUse();
  EXPECT_GT(received.received_bytes, 200'000u);
  const PortUse sent = one.port->TakeUse();
  EXPECT_EQ(sent.payload_bytes_sent, 1 + 40 + 65'440 + 65'441 + 300'000 + 10 * kHeader);
  one.link->TakeAll();
  EXPECT_EQ(one.port->TakeUse().payload_bytes_sent, 0u);
}

TEST(ReplicaPort, TensorsOfBoundariesGoFirst) {
  End end(0, 1);
  const auto in_link = [&] { return std::exchange(end.link->frames, {}).size(); };
  end.port->Send(Step(1), Bytes(100 * kChunkBytes));
  EXPECT_EQ(in_link(), kMostChunks);
  end.turns->Begin();
  end.link->TakeAll();
  EXPECT_EQ(in_link(), kChunksBesideTensors);
  end.link->TakeAll();
  EXPECT_EQ(in_link(), kChunksBesideTensors);
  end.turns->Begin();  // another port's
  end.turns->End();
  EXPECT_EQ(in_link(), 0u);
  end.turns->End();
  EXPECT_EQ(in_link(), kMostChunks - kChunksBesideTensors);
  end.port->Close(Deadline::After(absl::ZeroDuration()));
  EXPECT_EQ(in_link(), 100u - 2 * kMostChunks - kChunksBesideTensors);
  end.link->TakeAll();
}

TEST(ReplicaPort, FillsALinkThatHasHealed) {
  End end(0, 1);
  end.port->Send(Step(1), Bytes(100 * kChunkBytes));
  EXPECT_EQ(end.link->frames.size(), kMostChunks);
  end.port->OnHealed(absl::Seconds(1), 0);
  EXPECT_EQ(end.link->frames.size(), 100u);
}

TEST(ReplicaPort, TheFirstReplicaDecides) {
  End first(0, 1), second(1, 0);
  second.port->SendAgreement(wire::TensorKind::kNormUp, Step(4), {.squared_norm = 2.5});
  const auto heard = first.Hear(second.link->frames.at(0));
  ASSERT_EQ(heard.size(), 1u);
  const auto& said = std::get<ReplicaAgrees>(heard.front());
  EXPECT_EQ(said.replica, 1u);
  EXPECT_EQ(said.step, Step(4));
  EXPECT_EQ(said.message.squared_norm, 2.5);
  second.port->SendAgreement(wire::TensorKind::kStepControl, Step(4), {});
  EXPECT_THAT(first.Refusal(second.link->frames.at(1)), HasSubstr("expected replica 0 to decide"));
}

TEST(ReplicaPort, WhatMakesNoSenseEndsTheStage) {
  End sender(0, 1);
  sender.port->Send(Step(1), Bytes(200'000));
  const std::vector<Frame> good = sender.link->frames;
  ASSERT_EQ(good.size(), 4u);
  const auto refusal = [&](size_t heard, const Frame& bad) {
    End end(1, 0);
    for (size_t k = 0; k < heard; ++k) EXPECT_EQ(end.Refusal(good[k]), "none");
    return end.Refusal(bad);
  };
  const auto changed = [](Frame frame, const auto& change) {
    const std::span<std::byte, kHeader> bytes(frame.bytes.data(), kHeader);
    wire::TensorHeader header = *wire::DecodeTensorHeader(bytes);
    change(header);
    wire::EncodeTensorHeader(header, bytes);
    return frame;
  };
  EXPECT_EQ(refusal(3, good[3]), "none");
  EXPECT_THAT(refusal(1, good[2]), HasSubstr("expected chunk 1 of message 0"));
  EXPECT_THAT(refusal(1, good[0]), HasSubstr("expected chunk 1 of message 0"));
  EXPECT_THAT(refusal(0, {transport::Lane::kBulk, std::vector<std::byte>(10)}),
              HasSubstr("expected a tensor header"));
  EXPECT_THAT(refusal(0, {transport::Lane::kControl, good[0].bytes}), HasSubstr("bulk lane"));
  EXPECT_THAT(refusal(0, changed(good[0], [](auto& h) { h.blob_bytes = uint64_t{1} << 40; })),
              HasSubstr("up to 1048576 bytes"));
  EXPECT_THAT(refusal(1, changed(good[1], [](auto& h) { h.blob_bytes += 1; })),
              HasSubstr("expected chunk 1"));
  EXPECT_THAT(refusal(3, changed(good[3], [](auto& h) { h.chunks = 9; })), HasSubstr("none"));
  EXPECT_THAT(refusal(0, changed(good[0], [](auto& h) { h.replica = 2; })),
              HasSubstr("expected edge 3 from replica 0, got edge 3 from replica 2"));
  EXPECT_THAT(refusal(0, changed(good[0], [](auto& h) { h.direction = Direction::kBackward; })),
              HasSubstr("expected edge 3"));
  EXPECT_THAT(refusal(0, changed(good[0], [](auto& h) { h.kind = wire::TensorKind::kChunk; })),
              HasSubstr("a message of kind 1 between replicas"));
  Frame cut = good[0];
  cut.bytes.pop_back();
  EXPECT_THAT(refusal(0, cut), HasSubstr("expected chunk 0"));
}

TEST(ReplicaPort, DropsWhatIsOfAnotherAssignment) {
  End old(0, 1, 1), now(1, 0, 2);
  old.port->Send(Step(1), Bytes(10));
  EXPECT_TRUE(now.Hear(old.link->frames.at(0)).empty());
}

TEST(ReplicaPort, SaysWhoseLinkHasEnded) {
  End end(1, 0);
  end.port->OnClosed(absl::UnavailableError("reset"));
  end.port->OnClosed(absl::UnavailableError("again"));
  const auto heard = end.events->TakeAll();
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(std::get<PeerGone>(heard.front()).edge, EdgeId(3));
}

}  // namespace
}  // namespace longhaul::worker
