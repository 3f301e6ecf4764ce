// A Unix socket between every pair of ranks, and the one operation that all host collectives are
// made of: send bytes to every other rank while receiving from each.
//
// Used by one thread at a time; any thread may end the group. If a rank is lost, the other ranks
// end, too, and close their sockets. So after a closed socket Exchange first waits for the
// rendezvous to tell which rank was lost first, and errors name that rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/collective/core/unix_socket.h"
#include "transport/collective/host/header.h"
#include "transport/collective/member.h"

namespace longhaul::collective::host {

// The bytes that this rank sends to one other rank and receives from it. Both ranks have agreed on
// the sizes.
struct Transfer {
  std::span<const std::byte> send;
  std::span<std::byte> receive;
};

class Mesh {
 public:
  // All ranks call it. Returns when all ranks are connected; after an error the group has ended.
  // Sets the member's OnEnd.
  static StatusOr<std::unique_ptr<Mesh>> Connect(std::shared_ptr<Member> member, Deadline deadline);
  ~Mesh() { member_->OnEnd(nullptr); }
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  // Makes all `transfers` at once and returns when they are done. There is one entry for each rank;
  // this rank's own is ignored. `header` names the call; Exchange fills in its `bytes`. After an
  // error the group has ended: kDeadlineExceeded if `deadline` passed on this rank first, else
  // kAborted.
  Status Exchange(const Header& header, std::span<const Transfer> transfers, Deadline deadline);

 private:
  struct Peer {
    UniqueFd fd;
    int64_t process = 0;
    // State of the current exchange: headers and the bytes after them.
    std::array<std::byte, kHeaderBytes> header_out, header_in;
    size_t sent = 0, received = 0;
    bool Sent(const Transfer& transfer) const {
      return sent == kHeaderBytes + transfer.send.size();
    }
    bool Received(const Transfer& transfer) const {
      return received == kHeaderBytes + transfer.receive.size();
    }
  };

  Mesh(std::shared_ptr<Member> member, internal::WakeFd ended);
  // In mesh_connect.cc.
  Status ConnectAll(Deadline deadline);
  Status Dial(uint32_t rank, std::string_view address, Deadline deadline);
  Status AcceptHigher(const UniqueFd& listener, std::string_view secret, Deadline deadline);
  void Take(uint32_t rank, UniqueFd fd);

  // SendSome and ReceiveSome make one system call each. They return false if the socket is closed.
  static bool SendSome(Peer& peer, const Transfer& transfer);
  static bool ReceiveSome(Peer& peer, const Transfer& transfer);
  Status CheckHeader(uint32_t rank, const Header& mine, const Transfer& transfer) const;
  Status AwaitSockets(const Header& header, std::span<const Transfer> transfers, Deadline deadline);
  // Ends the group because of an error on this rank. Returns the reason that all ranks report.
  Status Fail(const Status& reason);
  Status PeerClosed(uint32_t rank, const Header& header);
  Status TooLate(const Header& header, std::span<const Transfer> transfers);

  const std::shared_ptr<Member> member_;
  const uint32_t rank_, size_;
  const internal::WakeFd ended_;
  std::vector<Peer> peers_;
  std::vector<short> ready_;  // poll's result for each peer
};

}  // namespace longhaul::collective::host
