#include "worker/audit/recorded_transport.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "worker/pipeline/tensor_assembler.h"

namespace longhaul::worker {

using transport::FrameView;
using transport::Lane;
using transport::LinkHandler;
using transport::LinkKey;
using transport::LinkOptions;

// The one thread on which all callbacks run. The transport stops it, so that links may go later.
class RecordedTransport::Loop {
 public:
  Loop() : thread_([this] { Run(); }) {}
  ~Loop() { Stop(); }
  void Post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  // Runs the tasks that wait, and ends the thread. Later tasks are dropped.
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool closing_ = false;
  std::thread thread_;
};

class RecordedTransport::RecordedLink final
    : public transport::Link,
      public std::enable_shared_from_this<RecordedTransport::RecordedLink> {
 public:
  RecordedLink(LinkKey key, std::shared_ptr<LinkHandler> handler,
               const std::vector<RecordedMessage>& messages, Epoch epoch, Stamp stamp,
               std::shared_ptr<Loop> loop)
      : key_(std::move(key)),
        epoch_(epoch),
        stamp_(stamp),
        loop_(std::move(loop)),
        handler_(std::move(handler)) {
    for (const RecordedMessage& message : messages) {
      const wire::TensorHeader& header = message.header;
      (header.kind != wire::TensorKind::kChunk   ? words_
       : header.direction == Direction::kForward ? activations_
                                                 : gradients_)
          .push_back(message);
    }
  }

  const LinkKey& key() const override { return key_; }
  void Send(Lane /*lane*/, const FrameView& frame, SendDone done) override {
    // The frame's bytes are valid until `done`.
    const auto header = wire::DecodeTensorHeader(frame.header);
    std::vector<std::byte> body;
    if (header.ok() && header->kind == wire::TensorKind::kMessageState) {
      body.assign(frame.body.begin(), frame.body.end());
    }
    loop_->Post([self = shared_from_this(),
                 header = header.ok() ? std::optional(*header) : std::nullopt,
                 body = std::move(body), done = std::move(done)] {
      if (header) self->Hear(*header, body);
      done(absl::OkStatus());
    });
  }
  void Close(Deadline /*deadline*/) override {
    loop_->Post([self = shared_from_this()] {
      if (const auto handler = std::exchange(self->handler_, nullptr)) {
        handler->OnClosed(absl::CancelledError("closed"));
      }
    });
  }
  void GrowCredits(uint32_t /*credits*/) override {}
  transport::LinkStats stats() const override { return {}; }
  std::string Describe() const override { return "a recording"; }

  // --- On the loop.

  // Plays the activations of the first step.
  void Play() {
    if (!activations_.empty()) PlayActivations(activations_.front().header.step);
  }

 private:
  static bool IsLastChunk(const wire::TensorHeader& header) {
    return header.kind == wire::TensorKind::kChunk && !header.validation && !header.sampling &&
           header.chunk + 1 == header.chunks;
  }
  // What the cell has sent.
  void Hear(const wire::TensorHeader& sent, std::span<const std::byte> body) {
    if (sent.kind == wire::TensorKind::kMessageState) {
      wire::TensorHeader echo = sent;
      echo.direction =
          sent.direction == Direction::kForward ? Direction::kBackward : Direction::kForward;
      Deliver(echo, body);
      return;
    }
    if (sent.kind == wire::TensorKind::kNormUp) norm_heard_ = sent.step;
    if (IsLastChunk(sent)) {
      if (sent.direction == Direction::kForward) {
        heard_.insert({sent.step, Slice{sent.microbatch, sent.slice}});
        PlayGradients(sent.step);
      } else {
        ++gradients_heard_;
      }
    }
    // A neighbour decides when it has all gradients of the step.
    if (norm_heard_ && gradients_heard_ == activations_played_ && activations_played_ > 0) {
      const Step step = *std::exchange(norm_heard_, std::nullopt);
      activations_played_ = gradients_heard_ = 0;
      PlayWord(step);
      PlayActivations(step.Next());
    }
  }
  void PlayActivations(Step step) {
    for (; !activations_.empty() && activations_.front().header.step == step;
         activations_.pop_front()) {
      PlayOne(activations_.front());
      ++activations_played_;
    }
  }
  // Plays the gradients whose activations have been sent, in the order of their arrival, and after
  // the last one the norm.
  void PlayGradients(Step step) {
    while (!gradients_.empty() && gradients_.front().header.step == step) {
      const wire::TensorHeader& header = gradients_.front().header;
      if (heard_.erase({step, Slice{header.microbatch, header.slice}}) == 0) return;
      PlayOne(gradients_.front());
      gradients_.pop_front();
    }
    PlayWord(step);
  }
  void PlayWord(Step step) {
    for (; !words_.empty() && words_.front().header.step <= step; words_.pop_front()) {
      PlayOne(words_.front());
    }
  }
  void PlayOne(const RecordedMessage& message) {
    wire::TensorHeader header = message.header;
    if (header.kind != wire::TensorKind::kChunk) return Deliver(header, message.body);
    header.chunks = static_cast<uint32_t>(
        std::max<size_t>(1, (message.body.size() + kChunkBytes - 1) / kChunkBytes));
    for (header.chunk = 0; header.chunk < header.chunks; ++header.chunk) {
      header.chunk_offset = uint64_t{header.chunk} * kChunkBytes;
      Deliver(header, message.body.subspan(
                          header.chunk_offset,
                          std::min(kChunkBytes, message.body.size() - header.chunk_offset)));
    }
  }
  void Deliver(wire::TensorHeader header, std::span<const std::byte> body) {
    if (!handler_) return;
    header.epoch = epoch_;
    header.stamp = stamp_;
    std::vector<std::byte> frame(wire::kTensorHeaderBytes + body.size());
    wire::EncodeTensorHeader(header, std::span(frame).first<wire::kTensorHeaderBytes>());
    std::ranges::copy(body, frame.begin() + wire::kTensorHeaderBytes);
    const bool is_chunk = header.kind == wire::TensorKind::kChunk;
    handler_->OnFrame(is_chunk ? Lane::kBulk : Lane::kControl, frame);
  }

  const LinkKey key_;
  const Epoch epoch_;
  const Stamp stamp_;
  const std::shared_ptr<Loop> loop_;
  // Used on the loop only.
  std::shared_ptr<LinkHandler> handler_;                 // null: closed
  std::deque<RecordedMessage> activations_, gradients_;  // not played yet, as they arrived
  std::deque<RecordedMessage> words_;                    // norms and decisions
  std::set<std::pair<Step, Slice>> heard_;               // activations whose gradients are missing
  uint64_t activations_played_ = 0, gradients_heard_ = 0;  // of the step under way
  std::optional<Step> norm_heard_;  // the cell has sent its norm of this step
};

RecordedTransport::RecordedTransport(const std::vector<RecordedMessage>& recording, Epoch epoch,
                                     Stamp stamp)
    : epoch_(epoch), stamp_(stamp), loop_(std::make_shared<Loop>()) {
  for (const RecordedMessage& message : recording) {
    of_edges_[message.header.edge].push_back(message);
  }
}

RecordedTransport::~RecordedTransport() {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& link : links_) link->Close(Deadline::After(absl::ZeroDuration()));
    links_.clear();
  }
  loop_->Stop();
}

void RecordedTransport::Play() {
  const std::lock_guard lock(mutex_);
  for (const auto& link : links_) loop_->Post([link] { link->Play(); });
}

void RecordedTransport::Expect(const LinkKey& key, std::string_view /*secret*/,
                               std::shared_ptr<LinkHandler> handler, const LinkOptions& /*options*/,
                               Deadline /*deadline*/, OpenDone done) {
  const auto recorded = of_edges_.find(key.edge);
  auto link = std::make_shared<RecordedLink>(
      key, std::move(handler),
      recorded == of_edges_.end() ? std::vector<RecordedMessage>() : recorded->second, epoch_,
      stamp_, loop_);
  {
    const std::lock_guard lock(mutex_);
    links_.push_back(link);
  }
  loop_->Post([link = std::move(link), done = std::move(done)] { done(link); });
}

void RecordedTransport::Dial(const std::vector<std::string>& /*addresses*/, const LinkKey& key,
                             std::string_view secret, std::shared_ptr<LinkHandler> handler,
                             const LinkOptions& options, Deadline deadline, OpenDone done) {
  Expect(key, secret, std::move(handler), options, deadline, std::move(done));
}

}  // namespace longhaul::worker
