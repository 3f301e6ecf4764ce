#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "transport/collective/core/id.h"
#include "transport/collective/core/message.h"
#include "transport/collective/core/roster.h"
#include "transport/collective/core/unix_socket.h"
#include "transport/collective/member.h"

namespace longhaul::collective {
namespace {

using internal::AcceptUnix;
using internal::MessageReader;
using internal::PeerOf;
using internal::Roster;
using internal::WakeFd;

// Connections that have not joined: how many, and for how long.
constexpr size_t kMaxStrangers = 128;
constexpr absl::Duration kStrangerLimit = absl::Seconds(5);
// What a member has not read yet; the answer to a Tell of the largest group is a quarter of it.
constexpr size_t kMaxUnread = size_t{16} << 20;
// Connections wait this long where the process has no descriptors left.
constexpr absl::Duration kPauseWithoutDescriptors = absl::Milliseconds(100);

struct Connection {
  UniqueFd fd;
  int64_t process = 0;
  MessageReader reader{internal::kJoinBytes};
  std::string unsent;
  bool closing = false;  // once all is sent
  Deadline join_by = Deadline::After(kStrangerLimit);
};

class RendezvousImpl : public Rendezvous {
 public:
  RendezvousImpl(const internal::RendezvousId& id, UniqueFd listener, WakeFd wake)
      : id_(FormatId(id)),
        roster_(id.secret),
        listener_(std::move(listener)),
        wake_(std::move(wake)),
        thread_([this] { Run(); }) {}

  ~RendezvousImpl() override {
    stop_.store(true);
    wake_.Wake();
    thread_.join();
  }

  const std::string& id() const override { return id_; }

 private:
  using Connections = std::map<Roster::Connection, Connection>;

  void Run() {
    std::vector<pollfd> polled;
    std::vector<Roster::Connection> numbers;
    while (!stop_.load()) {
      polled = {{wake_.fd(), POLLIN, 0}, {accept_from_ > Now() ? -1 : listener_.get(), POLLIN, 0}};
      numbers.clear();
      for (const auto& [number, connection] : connections_) {
        const short events = connection.unsent.empty() ? POLLIN : POLLIN | POLLOUT;
        polled.push_back({connection.fd.get(), events, 0});
        numbers.push_back(number);
      }
      if (::poll(polled.data(), polled.size(), internal::PollTimeout(NextTimeout())) < 0) continue;
      for (size_t i = 0; i < numbers.size(); ++i) {
        const short ready = polled[i + 2].revents;
        if ((ready & (POLLIN | POLLHUP | POLLERR)) != 0) Read(numbers[i]);
      }
      if (polled[1].revents != 0) Accept();
      DropLateStrangers();
      HandOut();
    }
    if (!roster_.Over()) roster_.End("the group's rendezvous was closed");
    HandOut();
  }
  Deadline NextTimeout() const {
    Deadline next = Deadline::After(absl::Hours(1));
    if (accept_from_ > Now()) next = Deadline::At(accept_from_);
    for (const auto& [number, connection] : connections_) {
      if (!roster_.IsMember(number) && connection.join_by.time() < next.time()) {
        next = connection.join_by;
      }
    }
    return next;
  }
  void Accept() {
    while (true) {
      auto fd = AcceptUnix(listener_);
      if (!fd.ok()) {
        if (!std::exchange(warned_, true)) {
          LogWarning("the rendezvous of a group: {}", Message(fd.status()));
        }
        accept_from_ = Now() + kPauseWithoutDescriptors;
        return;
      }
      if (!*fd) return;
      const internal::PeerProcess peer = PeerOf(*fd);
      if (!peer.same_user) continue;
      connections_[next_++] = {.fd = *std::move(fd), .process = peer.process};
      const auto strangers = std::ranges::count_if(
          connections_, [this](const auto& entry) { return !roster_.IsMember(entry.first); });
      if (static_cast<size_t>(strangers) <= kMaxStrangers) continue;
      const auto oldest = std::ranges::find_if(
          connections_, [this](const auto& entry) { return !roster_.IsMember(entry.first); });
      connections_.erase(oldest);
    }
  }
  void DropLateStrangers() {
    std::erase_if(connections_, [this](const auto& entry) {
      return !roster_.IsMember(entry.first) && entry.second.join_by.Expired();
    });
  }
  // Reads at most one chunk per call, so that a member that sends without end does not hold up the
  // others.
  void Read(Roster::Connection number) {
    Connection& connection = connections_.at(number);
    std::array<char, size_t{64} << 10> chunk;
    const ssize_t got = ::recv(connection.fd.get(), chunk.data(), chunk.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      Close(number);
      return;
    }
    if (connection.closing) return;
    connection.reader.Feed({chunk.data(), static_cast<size_t>(got)});
    while (!connection.closing) {
      connection.reader.SetPayloadLimit(roster_.PayloadLimit(number));
      auto message = connection.reader.Next();
      if (!message.ok()) {
        roster_.Drop(number, fmt::format("it sent its rendezvous what no member sends: {}",
                                         Message(message.status())));
        connection.closing = true;
        return;
      }
      if (!*message) return;
      roster_.OnMessage(number, connection.process, **message);
    }
  }
  // Sends all output. Repeats while that makes new output: a connection that is given up ends the
  // group, and the others must be told.
  void HandOut() {
    bool again = true;
    while (again) {
      for (Roster::Output& output : roster_.TakeOutput()) {
        const auto found = connections_.find(output.to);
        if (found == connections_.end()) continue;
        found->second.unsent += output.bytes;
        found->second.closing = found->second.closing || output.then_close;
      }
      std::vector<Roster::Connection> gone;
      for (auto& [number, connection] : connections_) {
        Flush(connection);
        if (connection.unsent.size() > kMaxUnread) {
          connection.unsent.clear();
          roster_.Drop(number, "it does not read what its rendezvous sends");
        }
        if (connection.closing && connection.unsent.empty()) gone.push_back(number);
      }
      for (const Roster::Connection number : gone) Close(number);
      again = roster_.HasOutput();
    }
  }
  // If a send fails, drops the unsent bytes but keeps the connection: Read must first take the
  // bytes that the peer had sent, perhaps a goodbye.
  static void Flush(Connection& connection) {
    while (!connection.unsent.empty()) {
      const ssize_t sent = ::send(connection.fd.get(), connection.unsent.data(),
                                  connection.unsent.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) return;
      connection.unsent.erase(0, sent < 0 ? std::string::npos : static_cast<size_t>(sent));
    }
  }
  void Close(Roster::Connection number) {
    roster_.OnClosed(number);
    connections_.erase(number);
  }

  const std::string id_;
  Roster roster_;
  Connections connections_;
  Roster::Connection next_ = 1;
  MonoTime accept_from_ = MonoTime::min();
  bool warned_ = false;
  UniqueFd listener_;
  WakeFd wake_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace

StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Open() {
  const internal::RendezvousId id = internal::NewRendezvousId();
  LH_ASSIGN_OR_RETURN(UniqueFd listener, internal::ListenUnix(id.socket));
  LH_ASSIGN_OR_RETURN(WakeFd wake, WakeFd::Create());
  return std::make_unique<RendezvousImpl>(id, std::move(listener), std::move(wake));
}

}  // namespace longhaul::collective
