// A sealed connection between two ends, and somebody on the way: he passes messages on, changes
// them, repeats them, holds them back and makes his own. Whatever he does, the receiver gets the
// messages that the sender sealed, in order and without gaps, or the connection ends.
//
// The input is a list of acts: u8 act, u8 number, u8 value.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fuzz/target.h"
#include "base/seal.h"
#include "proto/wire/link_header.h"
#include "transport/p2p/core/sealed_connection.h"

namespace longhaul::transport::internal {
namespace {

struct SealedWords {
  std::vector<std::byte> header, payload;
  friend bool operator==(const SealedWords&, const SealedWords&) = default;
};

// What lies below the seal: keeps what is sent, and says what it is told to.
class SealFuzzWire : public Connection {
 public:
  void SetEvents(std::shared_ptr<ConnectionEvents> events) override { events_ = std::move(events); }
  void Send(std::span<const std::byte> header, const FrameView& payload, SendDone done) override {
    SealedWords& message = sent.emplace_back();
    message.header.assign(header.begin(), header.end());
    message.payload.assign(payload.header.begin(), payload.header.end());
    message.payload.insert(message.payload.end(), payload.body.begin(), payload.body.end());
    done(absl::OkStatus());
  }
  void Close() override { closed = true; }
  std::string Describe() const override { return "wire"; }

  void Say(const SealedWords& message) {
    // The receiver is not told anything once it has closed.
    if (events_ && !closed) events_->OnMessage(message.header, message.payload);
  }
  void End() {
    if (events_) std::exchange(events_, nullptr)->OnClosed(absl::UnavailableError("the end"));
  }

  std::vector<SealedWords> sent;
  bool closed = false;

 private:
  std::shared_ptr<ConnectionEvents> events_;
};

class SealFuzzReceiver : public ConnectionEvents {
 public:
  void OnMessage(std::span<const std::byte> header, std::span<const std::byte> payload) override {
    got.push_back(
        {{header.begin(), header.begin() + wire::kLinkTagAt}, {payload.begin(), payload.end()}});
  }
  void OnClosed(const Status&) override { ++closed; }
  std::vector<SealedWords> got;
  int closed = 0;
};

SealedWords PlainWords(uint8_t number, uint8_t value) {
  SealedWords message;
  message.header.assign(wire::kLinkHeaderBytes, std::byte{number});
  std::fill(message.header.begin() + wire::kLinkTagAt, message.header.end(), std::byte{0});
  message.payload.assign(size_t{value} * 5, std::byte{value});
  return message;
}

class SealFuzzWay {
 public:
  SealFuzzWay() {
    sender_->SetEvents(std::make_shared<SealFuzzReceiver>());
    receiver_->SetEvents(heard_);
  }

  void Act(uint8_t act, uint8_t number, uint8_t value) {
    switch (act % 8) {
      case 0:
      case 1: {
        const SealedWords plain = PlainWords(number, value);
        const std::span<const std::byte> body(plain.payload);
        const size_t cut = std::min<size_t>(number, body.size());
        sender_->Send(plain.header, {.header = body.first(cut), .body = body.subspan(cut)},
                      [](const Status&) {});
        sealed_.push_back(
            {{plain.header.begin(), plain.header.begin() + wire::kLinkTagAt}, plain.payload});
        break;
      }
      case 2:
      case 3:
        if (next_ < out_->sent.size()) in_->Say(out_->sent[next_++]);
        break;
      case 4:  // again, or one that comes too early
        if (!out_->sent.empty()) in_->Say(out_->sent[number % out_->sent.size()]);
        break;
      case 5: {
        if (next_ >= out_->sent.size()) break;
        SealedWords changed = out_->sent[next_++];
        std::vector<std::byte>& part =
            number % 2 == 0 || changed.payload.empty() ? changed.header : changed.payload;
        part[number % part.size()] ^= std::byte{std::max<uint8_t>(value, 1)};
        in_->Say(changed);
        break;
      }
      case 6: {
        if (next_ >= out_->sent.size()) break;
        SealedWords cut = out_->sent[next_++];
        if (number % 2 == 0) cut.header.resize(std::min<size_t>(value, cut.header.size()));
        cut.payload.resize(std::min<size_t>(value, cut.payload.size() + 1));
        in_->Say(cut);
        break;
      }
      default: {
        SealedWords own = PlainWords(number, value);
        std::fill(own.header.begin() + wire::kLinkTagAt, own.header.end(), std::byte{value});
        in_->Say(own);
      }
    }
    Check();
  }

  // Returns whether a message has come through.
  bool End() {
    in_->End();
    out_->End();
    if (heard_->closed != 1) std::abort();
    return !heard_->got.empty();
  }

 private:
  void Check() const {
    const auto& got = heard_->got;
    if (got.size() > sealed_.size() || !std::equal(got.begin(), got.end(), sealed_.begin())) {
      std::abort();
    }
  }

  const std::string key_ = std::string(kSealKeyBytes, 'k');
  const std::string back_ = std::string(kSealKeyBytes, 'b');
  const std::shared_ptr<SealFuzzWire> out_ = std::make_shared<SealFuzzWire>();
  const std::shared_ptr<SealFuzzWire> in_ = std::make_shared<SealFuzzWire>();
  const std::shared_ptr<Connection> sender_ = SealConnection(out_, key_, back_);
  const std::shared_ptr<Connection> receiver_ = SealConnection(in_, back_, key_);
  const std::shared_ptr<SealFuzzReceiver> heard_ = std::make_shared<SealFuzzReceiver>();
  std::vector<SealedWords> sealed_;
  size_t next_ = 0;
};

}  // namespace
}  // namespace longhaul::transport::internal

LH_FUZZ_TARGET(sealed_messages) {
  longhaul::transport::internal::SealFuzzWay way;
  constexpr size_t kMostActs = 200;
  for (size_t i = 0; i + 2 < size && i < 3 * kMostActs; i += 3) {
    way.Act(data[i], data[i + 1], data[i + 2]);
  }
  return way.End();
}
