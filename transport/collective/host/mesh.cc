#include "transport/collective/host/mesh.h"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace longhaul::collective::host {
namespace {

// How long a closed socket waits for the rendezvous to say who was lost.
constexpr absl::Duration kRendezvousLimit = absl::Seconds(1);

bool MayTryAgain(ssize_t result) {
  return result < 0 && (errno == EAGAIN || errno == EINTR);
}

std::string NameCall(const Header& header) {
  return fmt::format("call {}, {}", header.number, ToString(header.call));
}

}  // namespace

bool Mesh::SendSome(Peer& peer, const Transfer& transfer) {
  std::array<iovec, 2> parts;
  int count = 0;
  const auto add = [&](std::span<const std::byte> bytes) {
    // sendmsg reads only; its interface has no const.
    if (!bytes.empty()) parts[count++] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  };
  const auto header = std::span<const std::byte>(peer.header_out);
  add(header.subspan(std::min(peer.sent, kHeaderBytes)));
  add(transfer.send.subspan(peer.sent - std::min(peer.sent, kHeaderBytes)));
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = static_cast<size_t>(count);
  const ssize_t sent = ::sendmsg(peer.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) peer.sent += static_cast<size_t>(sent);
  return sent > 0 || MayTryAgain(sent);
}

// Receives the header alone first: the bytes after it have a place only if the header matches.
bool Mesh::ReceiveSome(Peer& peer, const Transfer& transfer) {
  const std::span<std::byte> rest = peer.received < kHeaderBytes
                                        ? std::span(peer.header_in).subspan(peer.received)
                                        : transfer.receive.subspan(peer.received - kHeaderBytes);
  const ssize_t received = ::recv(peer.fd.get(), rest.data(), rest.size(), MSG_DONTWAIT);
  if (received > 0) peer.received += static_cast<size_t>(received);
  return received > 0 || MayTryAgain(received);
}

Status Mesh::CheckHeader(uint32_t rank, const Header& mine, const Transfer& transfer) const {
  const auto theirs = DecodeHeader(peers_[rank].header_in);
  if (!theirs.ok()) {
    return Annotate(theirs.status(), fmt::format("from rank {}", rank));
  }
  if (theirs->call != mine.call || theirs->number != mine.number || theirs->step != mine.step) {
    return InvalidArgument(
        "calls do not fit each other: rank {} made {}, but rank {} made {}; all ranks "
        "make the same calls in the same order",
        rank_, NameCall(mine), rank, NameCall(*theirs));
  }
  if (theirs->bytes != transfer.receive.size()) {
    return InvalidArgument(
        "counts do not fit each other in {}: rank {} sends {} bytes to rank {}, which "
        "expects {}",
        NameCall(mine), rank, theirs->bytes, rank_, transfer.receive.size());
  }
  return absl::OkStatus();
}

Status Mesh::Exchange(const Header& header, std::span<const Transfer> transfers,
                      Deadline deadline) {
  LH_CHECK(transfers.size() == size_, "{} transfers among {} ranks", transfers.size(), size_);
  LH_RETURN_IF_ERROR(member_->status());
  Header mine = header;
  for (uint32_t rank = 0; rank < size_; ++rank) {
    Peer& peer = peers_[rank];
    mine.bytes = transfers[rank].send.size();
    peer.header_out = EncodeHeader(mine);
    peer.sent = peer.received = 0;
    // There is usually room to send, so the first round does not poll.
    ready_[rank] = POLLOUT;
  }
  while (true) {
    bool done = true;
    for (uint32_t rank = 0; rank < size_; ++rank) {
      if (rank == rank_) continue;
      Peer& peer = peers_[rank];
      const Transfer& transfer = transfers[rank];
      const short ready = ready_[rank];
      const bool send = (ready & (POLLOUT | POLLHUP | POLLERR)) != 0 && !peer.Sent(transfer);
      if (send && !SendSome(peer, transfer)) return PeerClosed(rank, header);
      const bool receive = (ready & (POLLIN | POLLHUP | POLLERR)) != 0 && !peer.Received(transfer);
      if (receive) {
        const bool had_header = peer.received >= kHeaderBytes;
        if (!ReceiveSome(peer, transfer)) return PeerClosed(rank, header);
        if (!had_header && peer.received == kHeaderBytes) {
          const Status fits = CheckHeader(rank, header, transfer);
          if (!fits.ok()) return Fail(fits);
        }
      }
      done = done && peer.Sent(transfer) && peer.Received(transfer);
    }
    if (done) return absl::OkStatus();
    LH_RETURN_IF_ERROR(AwaitSockets(header, transfers, deadline));
  }
}

Status Mesh::AwaitSockets(const Header& header, std::span<const Transfer> transfers,
                          Deadline deadline) {
  std::array<pollfd, kMaxRanks + 1> polled;
  for (uint32_t rank = 0; rank < size_; ++rank) {
    const Peer& peer = peers_[rank];
    const short events = static_cast<short>((peer.Sent(transfers[rank]) ? 0 : POLLOUT) |
                                            (peer.Received(transfers[rank]) ? 0 : POLLIN));
    // A rank that has everything may close its socket, so it is not polled.
    polled[rank] = {rank == rank_ || events == 0 ? -1 : peer.fd.get(), events, 0};
  }
  polled[size_] = {ended_.fd(), POLLIN, 0};
  while (true) {
    const int count = ::poll(polled.data(), size_ + 1, internal::PollTimeout(deadline));
    if (count > 0) break;
    if (deadline.Expired()) return TooLate(header, transfers);
  }
  if (polled[size_].revents != 0) return member_->status();
  for (uint32_t rank = 0; rank < size_; ++rank) ready_[rank] = polled[rank].revents;
  return absl::OkStatus();
}

Status Mesh::Fail(const Status& reason) {
  member_->End(reason);
  return member_->status();
}

Status Mesh::PeerClosed(uint32_t rank, const Header& header) {
  Status end = member_->AwaitEnd(Deadline::After(kRendezvousLimit));
  if (!end.ok()) return end;
  const Peer& peer = peers_[rank];
  const bool came = peer.received > 0;
  return Fail(Aborted("rank {} ({}) closed its connection {} {}", rank,
                      internal::NameProcess(peer.process),
                      came ? "in the middle of" : "and did not come to", NameCall(header)));
}

Status Mesh::TooLate(const Header& header, std::span<const Transfer> transfers) {
  std::vector<uint32_t> absent, slow;
  for (uint32_t rank = 0; rank < size_; ++rank) {
    const Peer& peer = peers_[rank];
    if (rank == rank_ || (peer.Sent(transfers[rank]) && peer.Received(transfers[rank]))) continue;
    (peer.received == 0 ? absent : slow).push_back(rank);
  }
  const std::vector<uint32_t>& ranks = absent.empty() ? slow : absent;
  Status reason = DeadlineExceeded("{} {} did not {} {} in time",
                                   ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "),
                                   absent.empty() ? "finish" : "come to", NameCall(header));
  // If another rank ended the group first, its reason is what all report.
  if (Status end = member_->status(); !end.ok()) return end;
  member_->End(reason);
  return reason;
}

}  // namespace longhaul::collective::host
