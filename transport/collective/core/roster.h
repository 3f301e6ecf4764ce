// Who has joined a group, what its ranks told each other, and why it ended: all that a rendezvous
// knows, without its sockets. Pure: the caller brings what came and takes what is to be sent.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_CORE_ROSTER_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_CORE_ROSTER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transport/collective/core/message.h"

namespace longhaul::collective::internal {

class Roster {
 public:
  // The caller's number of a connection; never used twice.
  using Connection = uint64_t;
  struct Output {
    Connection to = 0;
    std::string bytes;
    bool then_close = false;
  };

  explicit Roster(std::string secret) : secret_(std::move(secret)) {}

  // `process` is the sender's id, 0 where it is not known.
  void OnMessage(Connection from, int64_t process, const GroupMessage& message);
  // Takes the connection away. Of a rank it ends the group: "rank 2 failed: <why>".
  void Drop(Connection connection, std::string_view why);
  void OnClosed(Connection from);
  // The first reason stands.
  void End(std::string reason);

  // What is to be sent, in order; empties the list.
  std::vector<Output> TakeOutput() { return std::exchange(output_, {}); }
  bool HasOutput() const { return !output_.empty(); }
  // How long a payload this connection may send.
  size_t PayloadLimit(Connection from) const;
  bool IsMember(Connection connection) const { return Find(connection) != nullptr; }
  // All ranks have joined and said goodbye, or the group has ended.
  bool Over() const;

 private:
  struct Rank {
    Connection connection = 0;
    int64_t process = 0;
    bool joined = false;
    bool gone = false;  // said goodbye
    uint64_t rounds = 0;
    std::deque<std::string> words;  // not yet told to all
  };

  const Rank* Find(Connection connection) const;
  uint32_t NumberOf(const Rank& rank) const { return static_cast<uint32_t>(&rank - ranks_.data()); }
  void OnJoin(Connection from, int64_t process, const GroupMessage& message);
  Status CheckJoin(const JoinPayload& join) const;
  void OnTell(Rank& rank, std::string word);
  void OnGoodbye(Rank& rank);
  void TellWhoCame(uint64_t round);
  void SendAll(const std::string& bytes);
  bool AllJoined() const;

  const std::string secret_;
  std::vector<Rank> ranks_;  // of the size that the first one said
  std::optional<std::string> end_;
  std::vector<Output> output_;
};

}  // namespace longhaul::collective::internal

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_CORE_ROSTER_H_
