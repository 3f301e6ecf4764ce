// Any bytes, in any pieces, as what a peer sends over a TCP stream: the messages that come out are
// those that the bytes have, however the bytes were cut.
//
// The input: u8 size of a piece, the piece, and so on.
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/event_loop.h"
#include "base/fuzz/target.h"
#include "base/unique_fd.h"
#include "proto/wire/link_header.h"
#include "proto/wire/little_endian.h"
#include "transport/p2p/stream/stream_connection.h"

namespace longhaul::transport::stream {
namespace {

using Bytes = std::vector<std::byte>;
constexpr size_t kPayloadLengthAt = 28;

// Takes what comes until the connection has closed.
class StreamFuzzReceiver : public internal::ConnectionEvents {
 public:
  void OnMessage(std::span<const std::byte> header, std::span<const std::byte> payload) override {
    got.insert(got.end(), header.begin(), header.end());
    got.insert(got.end(), payload.begin(), payload.end());
    ++messages;
  }
  void OnClosed(const Status& reason) override {
    if (reason.ok()) std::abort();
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }
  void AwaitEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_; });
  }

  Bytes got;
  size_t messages = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
};

class StreamFuzzConnection : public StreamConnection {
 public:
  StreamFuzzConnection(std::shared_ptr<EventLoop> loop, std::shared_ptr<ConnectionTable> table)
      : StreamConnection(std::move(loop), std::move(table),
                         {.description = "fuzz", .ended = "the peer ended", .broken = "fuzz: "}) {}
  using StreamConnection::Adopt;

 private:
  void OnConnected() override { Open(); }
};

std::vector<std::span<const std::byte>> PiecesOf(std::span<const std::byte> input) {
  std::vector<std::span<const std::byte>> pieces;
  while (!input.empty()) {
    const size_t bytes = std::min(static_cast<size_t>(input[0]), input.size() - 1);
    pieces.push_back(input.subspan(1, bytes));
    input = input.subspan(1 + bytes);
  }
  return pieces;
}

// The bytes of whole messages at the beginning of a stream.
size_t WholeBytes(std::span<const std::byte> stream) {
  size_t at = 0;
  while (stream.size() - at >= wire::kLinkHeaderBytes) {
    const size_t payload = wire::GetLe<uint32_t>(stream.subspan(at), kPayloadLengthAt);
    if (payload > stream.size() - at - wire::kLinkHeaderBytes) break;
    at += wire::kLinkHeaderBytes + payload;
  }
  return at;
}

bool Feed(std::span<const std::byte> input) {
  static const auto thread = EventLoopThread::Start().value();
  static const auto table = std::make_shared<ConnectionTable>();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  UniqueFd peer(ends[0]);
  const auto receiver = std::make_shared<StreamFuzzReceiver>();
  thread->RunAndWait([&] {
    const auto connection = std::make_shared<StreamFuzzConnection>(thread->loop(), table);
    table->connections.Add(connection);
    connection->SetEvents(receiver);
    connection->Adopt(UniqueFd(ends[1]));
  });
  Bytes whole;
  for (const auto piece : PiecesOf(input)) {
    whole.insert(whole.end(), piece.begin(), piece.end());
    // Fails once the connection has had enough.
    if (::send(peer.get(), piece.data(), piece.size(), MSG_NOSIGNAL) < 0) break;
  }
  ::shutdown(peer.get(), SHUT_WR);
  receiver->AwaitEnd();
  thread->RunAndWait([] {});  // the connection is gone
  const size_t expected = WholeBytes(whole);
  // A header that names too large a payload comes alone, and is the last.
  const bool fits =
      receiver->got.size() == expected || receiver->got.size() == expected + wire::kLinkHeaderBytes;
  if (!fits || !std::equal(receiver->got.begin(), receiver->got.end(), whole.begin())) std::abort();
  return expected > 0;
}

}  // namespace
}  // namespace longhaul::transport::stream

LH_FUZZ_TARGET(stream_frames) {
  return longhaul::transport::stream::Feed(std::as_bytes(std::span(data, size)));
}
