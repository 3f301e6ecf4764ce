#include "transport/p2p/relay/connection.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <array>
#include <string_view>
#include <utility>

#include "transport/relay/socket.h"

namespace longhaul::transport::relay {
namespace {

using longhaul::relay::RelayWord;
using longhaul::relay::Side;
using longhaul::relay::WouldBlock;

// From the look-up of the relay's name to its greeting.
constexpr absl::Duration kGreetingLimit = absl::Seconds(3);

}  // namespace

std::shared_ptr<RelayedConnection> RelayedConnection::Start(
    const std::shared_ptr<EventLoop>& loop, const std::shared_ptr<stream::ConnectionTable>& table,
    const HostPort& address, longhaul::relay::Way way, Side side, Joined joined) {
  std::shared_ptr<RelayedConnection> connection(new RelayedConnection(
      loop, table, longhaul::ToString(address), std::move(way), side, std::move(joined)));
  table->connections.Add(connection);
  const std::weak_ptr<RelayedConnection> weak = connection;
  connection->greeting_timer_ = loop->AddTimer(loop->now() + kGreetingLimit, [weak] {
    if (const auto self = weak.lock()) {
      self->CloseWith(
          Unavailable("no relay answers within {} s", absl::ToInt64Seconds(kGreetingLimit)));
    }
  });
  connection->Dial(address, longhaul::relay::kWaitingKeepAlive);
  return connection;
}

RelayedConnection::RelayedConnection(std::shared_ptr<EventLoop> loop,
                                     std::shared_ptr<stream::ConnectionTable> table,
                                     const std::string& address, longhaul::relay::Way way,
                                     Side side, Joined joined)
    : StreamConnection(
          std::move(loop), std::move(table),
          {.description = fmt::format("{} relay {}",
                                      side == Side::kDialler ? "through" : "waiting at", address),
           .ended = fmt::format("the peer or the relay {} ended the connection", address),
           .broken = fmt::format("through relay {}: ", address)}),
      way_(std::move(way)),
      side_(side),
      joined_(std::move(joined)) {}

void RelayedConnection::OnGreeting() {
  answered_ ? TakeWord() : TakeGreeting();
}

void RelayedConnection::TakeGreeting() {
  std::array<char, longhaul::relay::kGreetingBytes> bytes;
  const ssize_t got =
      ::recv(fd(), bytes.data(), longhaul::relay::kGreetingBytes - greeting_.size(), MSG_DONTWAIT);
  if (got < 0 && WouldBlock()) return;
  if (got <= 0) return CloseWith(absl::UnavailableError("the relay ended the connection"));
  greeting_.append(bytes.data(), static_cast<size_t>(got));
  if (greeting_.size() < longhaul::relay::kGreetingBytes) return;
  const StatusOr<std::string_view> nonce = longhaul::relay::ParseGreeting(greeting_);
  if (!nonce.ok()) return CloseWith(nonce.status());
  const std::string answer = longhaul::relay::Answer(way_.ticket, side_, *nonce);
  // It has room for so little.
  if (::send(fd(), answer.data(), answer.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(answer.size())) {
    return CloseWith(absl::UnavailableError("the relay ended the connection"));
  }
  answered_ = true;
  loop().CancelTimer(greeting_timer_);
}

// One byte: messages behind it come in the loop's next round, behind what was posted before the
// other end came, such as that it is expected.
void RelayedConnection::TakeWord() {
  char word = 0;
  const ssize_t got = ::recv(fd(), &word, 1, MSG_DONTWAIT);
  if (got < 0 && WouldBlock()) return;
  if (got <= 0) return CloseWith(absl::UnavailableError("the relay ended the connection"));
  switch (static_cast<RelayWord>(word)) {
    case RelayWord::kJoined:
      // From now on the link's heartbeats say whether the peer is there.
      longhaul::relay::SetKeepAlive(fd(), longhaul::relay::kJoinedKeepAlive);
      Open();
      if (const auto joined = std::exchange(joined_, nullptr)) {
        joined(std::static_pointer_cast<RelayedConnection>(shared_from_this()));
      }
      return;
    case RelayWord::kRefused:
      return CloseWith(absl::PermissionDeniedError(
          "the relay refuses the ticket: the relay or the coordinator was started with another "
          "state directory, or the epoch is a week old"));
    case RelayWord::kNobody:
      return CloseWith(absl::UnavailableError("the peer does not wait at the relay"));
    case RelayWord::kFull:
      return CloseWith(absl::UnavailableError("the relay is full"));
  }
  CloseWith(absl::InvalidArgumentError("the relay said what no relay says"));
}

void RelayedConnection::OnClosing() {
  loop().CancelTimer(greeting_timer_);
  joined_ = nullptr;
}

}  // namespace longhaul::transport::relay
