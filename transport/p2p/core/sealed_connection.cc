#include "transport/p2p/core/sealed_connection.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/seal.h"
#include "proto/wire/link_header.h"

namespace longhaul::transport::internal {
namespace {

using wire::kLinkHeaderBytes;
using wire::kLinkTagAt;
using Header = std::array<std::byte, kLinkHeaderBytes>;
static_assert(wire::kLinkTagBytes == kSealTagBytes);

// A message as it travels, until it is sent.
struct SealedMessage {
  Header header;
  std::unique_ptr<std::byte[]> payload =
      std::make_unique_for_overwrite<std::byte[]>(kMaxFramePayloadBytes);
};

class SealedConnection : public Connection,
                         public ConnectionEvents,
                         public std::enable_shared_from_this<SealedConnection> {
 public:
  SealedConnection(std::shared_ptr<Connection> inner, std::string_view sending_key,
                   std::string_view receiving_key)
      : inner_(std::move(inner)), sending_(sending_key), receiving_(receiving_key) {}

  void SetEvents(std::shared_ptr<ConnectionEvents> events) override {
    events_ = std::move(events);
    inner_->SetEvents(shared_from_this());
  }

  void Send(std::span<const std::byte> header, const FrameView& payload, SendDone done) override {
    LH_CHECK(header.size() == kLinkHeaderBytes && payload.size() <= kMaxFramePayloadBytes,
             "a sealed connection carries frames of links");
    std::unique_ptr<SealedMessage> message = TakeMessage();
    std::ranges::copy(header, message->header.begin());
    const std::span<std::byte, kLinkHeaderBytes> own(message->header);
    sending_.Seal(own.first<kLinkTagAt>(), payload.header, payload.body, message->payload.get(),
                  own.subspan<kLinkTagAt>());
    const std::span<const std::byte> sealed(message->payload.get(), payload.size());
    const std::span<const std::byte> sealed_header(message->header);
    inner_->Send(sealed_header, {.header = {}, .body = sealed},
                 [self = shared_from_this(),
                  message = std::make_shared<std::unique_ptr<SealedMessage>>(std::move(message)),
                  done = std::move(done)](const Status& status) {
                   self->GiveBack(std::move(*message));
                   done(status);
                 });
  }

  void Close() override { inner_->Close(); }
  std::string Describe() const override { return inner_->Describe() + ", sealed"; }

  void OnMessage(std::span<const std::byte> header, std::span<const std::byte> payload) override {
    // A copy: what the events do in the call may close this connection.
    const std::shared_ptr<ConnectionEvents> events = events_;
    if (broken_ || !events) return;
    if (header.size() != kLinkHeaderBytes || payload.size() > kMaxFramePayloadBytes) {
      return Break();
    }
    const std::span<const std::byte, kLinkHeaderBytes> whole(header);
    if (!receiving_.Open(whole.first<kLinkTagAt>(), payload, whole.subspan<kLinkTagAt>(),
                         opened_->payload.get())) {
      return Break();
    }
    events->OnMessage(header, {opened_->payload.get(), payload.size()});
  }

  void OnClosed(const Status& reason) override {
    const std::shared_ptr<ConnectionEvents> events = std::exchange(events_, nullptr);
    if (events) events->OnClosed(broken_ ? Broken() : reason);
  }

 private:
  // Buffers of sent messages are used again, up to this many: one is as large as the largest frame.
  static constexpr size_t kMostKept = 16;

  static Status Broken() {
    return absl::UnavailableError(
        "a message was not as the peer had sealed it: something on the way changed, repeated or "
        "took messages");
  }
  // After a message that does not open no later one can be trusted: the connection ends.
  void Break() {
    broken_ = true;
    inner_->Close();
  }

  std::unique_ptr<SealedMessage> TakeMessage() {
    if (kept_.empty()) return std::make_unique<SealedMessage>();
    std::unique_ptr<SealedMessage> message = std::move(kept_.back());
    kept_.pop_back();
    return message;
  }
  void GiveBack(std::unique_ptr<SealedMessage> message) {
    if (kept_.size() < kMostKept) kept_.push_back(std::move(message));
  }

  const std::shared_ptr<Connection> inner_;
  std::shared_ptr<ConnectionEvents> events_;
  Sealer sending_, receiving_;
  std::vector<std::unique_ptr<SealedMessage>> kept_;
  const std::unique_ptr<SealedMessage> opened_ = std::make_unique<SealedMessage>();
  bool broken_ = false;
};

}  // namespace

std::shared_ptr<Connection> SealConnection(std::shared_ptr<Connection> connection,
                                           std::string_view sending_key,
                                           std::string_view receiving_key) {
  return std::make_shared<SealedConnection>(std::move(connection), sending_key, receiving_key);
}

}  // namespace longhaul::transport::internal
