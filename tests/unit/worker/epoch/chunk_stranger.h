// Who has the secret of a run and opens another worker's link for chunks of data sets
// (worker/epoch/chunk_peers.h), and then says what a test has it say.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "proto/wire/chunk_word.h"
#include "tests/support/mailbox.h"
#include "transport/p2p/loopback/factory.h"

namespace longhaul::worker {

class ChunkStranger : public transport::LinkHandler,
                      public std::enable_shared_from_this<ChunkStranger> {
 public:
  // `on_ask`: on the link's loop; null: Hear gives the asks.
  explicit ChunkStranger(std::function<void(const wire::ChunkAsk&)> on_ask = nullptr)
      : on_ask_(std::move(on_ask)), transport_(*transport::loopback::CreateTransport({})) {}

  // Begins to open the link; AwaitOpen ends that.
  void Expect(const transport::LinkKey& key, const std::string& secret) {
    transport_->Expect(key, secret, shared_from_this(), {}, Limit(), Opened());
  }
  void Dial(const std::string& address, const transport::LinkKey& key, const std::string& secret) {
    transport_->Dial({address}, key, secret, shared_from_this(), {}, Limit(), Opened());
  }
  void AwaitOpen() { link_ = links_.Take().value_or(nullptr); }
  const std::string& address() const { return transport_->address(); }

  void Say(transport::Lane lane, std::string text) {
    const auto owned = std::make_shared<const std::string>(std::move(text));
    link_->Send(lane, {.header = {}, .body = std::as_bytes(std::span(*owned))},
                [owned](const Status&) {});
  }
  void SayPiece(uint32_t request, const std::string& bytes) {
    Say(transport::Lane::kBulk, wire::EncodeChunkPieceHeader(request) + bytes);
  }
  void Close() { link_->Close(Deadline::After(absl::ZeroDuration())); }
  // What came next on the control lane.
  wire::ChunkWord Hear() { return heard_.Take().value_or(wire::ChunkNotHere{}); }
  bool AwaitClosed() { return closed_.Take().has_value(); }
  bool silent() const { return heard_.empty(); }
  // Bytes of chunks that came.
  uint64_t pieces() const { return pieces_; }
  // Links and their handlers hold each other.
  void End() {
    link_.reset();
    transport_.reset();
  }

  void OnFrame(transport::Lane lane, std::span<const std::byte> payload) override {
    if (lane == transport::Lane::kBulk) {
      pieces_ += wire::DecodeChunkPiece(payload).value_or(wire::ChunkPiece{}).bytes.size();
      return;
    }
    const wire::ChunkWord word = wire::DecodeChunkWord(payload).value_or(wire::ChunkNotHere{});
    if (const auto* ask = std::get_if<wire::ChunkAsk>(&word); ask != nullptr && on_ask_) {
      on_ask_(*ask);
    } else {
      heard_.Push(word);
    }
  }
  void OnClosed(const Status& reason) override { closed_.Push(reason); }

 private:
  static Deadline Limit() { return Deadline::After(absl::Seconds(20)); }
  transport::Transport::OpenDone Opened() {
    return [self = shared_from_this()](StatusOr<std::shared_ptr<transport::Link>> link) {
      if (link.ok()) self->links_.Push(*std::move(link));
    };
  }

  const std::function<void(const wire::ChunkAsk&)> on_ask_;
  std::unique_ptr<transport::Transport> transport_;
  ::longhaul::testing::Mailbox<std::shared_ptr<transport::Link>> links_;
  std::shared_ptr<transport::Link> link_;
  ::longhaul::testing::Mailbox<wire::ChunkWord> heard_;
  ::longhaul::testing::Mailbox<Status> closed_;
  std::atomic<uint64_t> pieces_{0};
};

}  // namespace longhaul::worker
