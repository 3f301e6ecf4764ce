// A port of a boundary, and a link that keeps what the port sends, for tests that hand frames over
// themselves.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/registry.h"
#include "worker/pipeline/boundary_port.h"

namespace longhaul::worker {

inline constexpr codec::Shape kShape{1, 192, 128};  // 98,304 bytes as fp32: two chunks
inline const LinkCredits kPlanned(1e3, absl::Seconds(10), 393'216);

// Keeps what is sent. Completes every send at once.
class RecordingLink : public transport::Link {
 public:
  const transport::LinkKey& key() const override { return key_; }
  void Send(transport::Lane lane, const transport::FrameView& frame, SendDone done) override {
    std::vector<std::byte> bytes(frame.header.begin(), frame.header.end());
    bytes.insert(bytes.end(), frame.body.begin(), frame.body.end());
    {
      const std::lock_guard lock(mutex_);
      frames_.emplace_back(lane, std::move(bytes));
    }
    done(absl::OkStatus());
  }
  void Close(Deadline) override {}
  void GrowCredits(uint32_t count) override { credits.push_back(count); }
  transport::LinkStats stats() const override { return {}; }
  std::string Describe() const override { return "recording"; }

  std::vector<std::pair<transport::Lane, std::vector<std::byte>>> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(frames_, {});
  }

  std::vector<uint32_t> credits;  // that were asked for

 private:
  transport::LinkKey key_{RunId("run"), Stamp(1), EdgeId(0)};
  std::mutex mutex_;
  std::vector<std::pair<transport::Lane, std::vector<std::byte>>> frames_;
};

class BoundaryPortTest : public ::testing::Test {
 protected:
  std::shared_ptr<BoundaryPort> Make(bool upstream) { return Make(upstream, 1, events_); }
  std::shared_ptr<BoundaryPort> Make(bool upstream, uint64_t epoch,
                                     const std::shared_ptr<EventQueue>& events) {
    return BoundaryPort::Create(Options(upstream, "none", epoch), &codec_thread_, events);
  }
  // The same codec in both directions.
  BoundaryPortOptions Options(bool upstream, std::string_view codec_string, uint64_t epoch = 1) {
    const auto codec = std::shared_ptr<const codec::Codec>(*codec::ParseCodec(codec_string));
    return {.stamp = Stamp(epoch),
            .epoch = Epoch(epoch),
            .edge = EdgeId(0),
            .peer = {.replica = replica_, .stage = upstream ? 0u : 1u},
            .upstream = upstream,
            .shape = shape_,
            .microbatches = 2,
            .validation_microbatches = 1,
            .send_codec = codec,
            .receive_codec = codec,
            .credits = kPlanned};
  }

  // The frames of stage 0 sending `microbatch` of step 1.
  std::vector<std::vector<std::byte>> FramesOf(uint32_t microbatch, uint64_t epoch = 1) {
    // What the sender hears of itself is none of the receiver's business.
    const auto sender = Make(/*upstream=*/false, epoch, std::make_shared<EventQueue>());
    const auto link = std::make_shared<RecordingLink>();
    sender->Attach(link);
    auto values = std::make_shared<std::vector<float>>(shape_.elements());
    for (size_t i = 0; i < values->size(); ++i) (*values)[i] = static_cast<float>(i) + microbatch;
    sender->SendTensor({Step(1)}, Microbatch(microbatch),
                       {{values->data(), codec::Dtype::kF32, shape_}, values});
    Drain();
    std::vector<std::vector<std::byte>> frames;
    for (auto& [lane, bytes] : link->Take()) {
      EXPECT_EQ(lane, transport::Lane::kBulk);
      frames.push_back(std::move(bytes));
    }
    return frames;
  }

  // Until the codec thread has done what was posted before.
  void Drain() {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    codec_thread_.Post([&] {
      const std::lock_guard lock(mutex);
      done = true;
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
  }

  void ExpectFailure(const std::string& text) {
    const auto events = events_->TakeAll();
    ASSERT_EQ(events.size(), 1u);
    const auto* failed = std::get_if<Failed>(&events.front());
    ASSERT_NE(failed, nullptr);
    EXPECT_NE(Message(failed->reason).find(text), std::string::npos) << failed->reason;
  }

  codec::Shape shape_ = kShape;
  uint32_t replica_ = 0;
  CodecThread codec_thread_;
  std::shared_ptr<EventQueue> events_ = std::make_shared<EventQueue>();
};

}  // namespace longhaul::worker
