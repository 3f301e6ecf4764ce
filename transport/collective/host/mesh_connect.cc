// How a mesh comes to be: every rank listens, tells the others where and a secret, dials those
// before it and waits for those behind it.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"
#include "transport/collective/core/id.h"
#include "transport/collective/host/mesh.h"

namespace longhaul::collective::host {
namespace {

// Larger than what a core's cache holds twice brings nothing.
constexpr int kSocketBytes = 1 << 20;
// Connections that have not said hello; the oldest goes.
constexpr size_t kMaxStrangers = 128;

// What is told: the name of the socket, a blank, the secret's bytes.
std::string FormatAddress(std::string_view name, std::string_view secret) {
  return fmt::format("{} {}", name, secret);
}

struct Stranger {
  UniqueFd fd;
  std::array<std::byte, kHelloBytes> hello;
  size_t got = 0;

  // False: it is closed.
  bool Read() {
    const ssize_t read = ::recv(fd.get(), hello.data() + got, hello.size() - got, MSG_DONTWAIT);
    if (read < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (read <= 0) return false;
    got += static_cast<size_t>(read);
    return true;
  }
};

void GrowBuffers(const UniqueFd& fd) {
  for (const auto& [forced, plain] :
       {std::pair(SO_SNDBUFFORCE, SO_SNDBUF), std::pair(SO_RCVBUFFORCE, SO_RCVBUF)}) {
    // Only a privileged process may have more than the system's limit; the rest takes that.
    if (::setsockopt(fd.get(), SOL_SOCKET, forced, &kSocketBytes, sizeof(kSocketBytes)) == 0) {
      continue;
    }
    (void)::setsockopt(fd.get(), SOL_SOCKET, plain, &kSocketBytes, sizeof(kSocketBytes));
  }
}

}  // namespace

StatusOr<std::unique_ptr<Mesh>> Mesh::Connect(std::shared_ptr<Member> member, Deadline deadline) {
  LH_ASSIGN_OR_RETURN(internal::WakeFd ended, internal::WakeFd::Create());
  std::unique_ptr<Mesh> mesh(new Mesh(std::move(member), std::move(ended)));
  const Status connected = mesh->ConnectAll(deadline);
  if (!connected.ok()) return mesh->Fail(connected);
  return mesh;
}

Mesh::Mesh(std::shared_ptr<Member> member, internal::WakeFd ended)
    : member_(std::move(member)),
      rank_(member_->place().rank),
      size_(member_->place().size),
      ended_(std::move(ended)),
      peers_(size_),
      ready_(size_) {
  member_->OnEnd([this](const Status&) { ended_.Wake(); });
}

Status Mesh::ConnectAll(Deadline deadline) {
  const std::string name = internal::NewSocketName("mesh");
  const std::string secret = RandomBytes(kHelloSecretBytes);
  LH_ASSIGN_OR_RETURN(const UniqueFd listener, internal::ListenUnix(name));
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> addresses,
                      member_->Tell(FormatAddress(name, secret), deadline));
  for (uint32_t rank = 0; rank < rank_; ++rank) {
    LH_RETURN_IF_ERROR(Dial(rank, addresses[rank], deadline));
  }
  LH_RETURN_IF_ERROR(AcceptHigher(listener, secret, deadline));
  // Then all have a communicator or none has: nobody ends a group that others still connect.
  return member_->Tell("", deadline).status();
}

void Mesh::Take(uint32_t rank, UniqueFd fd) {
  GrowBuffers(fd);
  peers_[rank].process = internal::PeerOf(fd).process;
  peers_[rank].fd = std::move(fd);
}

Status Mesh::Dial(uint32_t rank, std::string_view address, Deadline deadline) {
  const size_t blank = address.find(' ');
  if (blank == std::string_view::npos || address.size() != blank + 1 + kHelloSecretBytes) {
    return InvalidArgument(
        "rank {} told {} bytes that are no address of a host communicator; all ranks "
        "must make one",
        rank, address.size());
  }
  const std::string_view name = address.substr(0, std::min<size_t>(blank, 100));
  auto fd = internal::ConnectUnix(name, deadline);
  if (!fd.ok()) return Annotate(fd.status(), fmt::format("connecting to rank {}", rank));
  if (!internal::PeerOf(*fd).same_user) {
    return InvalidArgument("the socket of rank {} is another user's", rank);
  }
  const auto hello = EncodeHello(address.substr(blank + 1), rank_);
  // A new socket has room for it.
  if (::send(fd->get(), hello.data(), hello.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(hello.size())) {
    return FromErrno(fmt::format("rank {} took no hello", rank), errno);
  }
  Take(rank, *std::move(fd));
  return absl::OkStatus();
}

Status Mesh::AcceptHigher(const UniqueFd& listener, std::string_view secret, Deadline deadline) {
  std::vector<Stranger> strangers;
  const auto missing = [this] {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = rank_ + 1; rank < size_; ++rank) {
      if (!peers_[rank].fd) ranks.push_back(rank);
    }
    return ranks;
  };
  while (!missing().empty()) {
    std::vector<pollfd> polled = {{ended_.fd(), POLLIN, 0}, {listener.get(), POLLIN, 0}};
    for (const Stranger& stranger : strangers) polled.push_back({stranger.fd.get(), POLLIN, 0});
    const int ready = ::poll(polled.data(), polled.size(), internal::PollTimeout(deadline));
    if (polled[0].revents != 0) return member_->status();
    if (ready == 0 && deadline.Expired()) {
      return DeadlineExceeded("{} {} did not connect in time",
                              missing().size() == 1 ? "rank" : "ranks", fmt::join(missing(), ", "));
    }
    std::erase_if(strangers, [&](Stranger& stranger) {
      if (!stranger.Read()) return true;
      if (stranger.got < kHelloBytes) return false;
      const auto rank = DecodeHello(stranger.hello, secret);
      if (rank.ok() && *rank > rank_ && *rank < size_ && !peers_[*rank].fd) {
        Take(*rank, std::move(stranger.fd));
      }
      return true;
    });
    while (true) {
      LH_ASSIGN_OR_RETURN(UniqueFd fd, internal::AcceptUnix(listener));
      if (!fd) break;
      if (internal::PeerOf(fd).same_user) strangers.push_back({.fd = std::move(fd)});
      if (strangers.size() > kMaxStrangers) strangers.erase(strangers.begin());
    }
  }
  return absl::OkStatus();
}

}  // namespace longhaul::collective::host
