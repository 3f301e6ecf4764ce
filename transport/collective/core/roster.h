// The state of a rendezvous without its sockets: the ranks that have joined, the texts that they
// told each other, and why the group ended. Pure: the caller passes in the messages that arrive,
// and sends the messages that TakeOutput returns.
#pragma once

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
  // A number that the caller gives to a connection, and never again to another.
  using Connection = uint64_t;
  struct Output {
    Connection to = 0;
    std::string bytes;
    bool then_close = false;  // close the connection once `bytes` are sent
  };

  explicit Roster(std::string secret) : secret_(std::move(secret)) {}

  // `process`: the sender's process id; 0 if unknown.
  void OnMessage(Connection from, int64_t process, const GroupMessage& message);
  // Asks the caller, by an Output, to close a connection that is still open. If the connection
  // belongs to a rank that has not said goodbye, the group ends with "rank 2 failed: <why>".
  void Drop(Connection connection, std::string_view why);
  // Call it when a connection has closed. If the connection belongs to a rank that has not said
  // goodbye, the group ends.
  void OnClosed(Connection from);
  // Ends the group. Only the first reason counts.
  void End(std::string reason);

  // Returns the messages to send, in order, and empties the list.
  std::vector<Output> TakeOutput() { return std::exchange(output_, {}); }
  bool HasOutput() const { return !output_.empty(); }
  // Returns the maximum payload, in bytes, that this connection may send now.
  size_t PayloadLimit(Connection from) const;
  bool IsMember(Connection connection) const { return Find(connection) != nullptr; }
  // True once all ranks have joined and said goodbye, or the group has ended.
  bool Over() const;

 private:
  struct Rank {
    Connection connection = 0;
    int64_t process = 0;
    bool joined = false;
    bool gone = false;              // said goodbye
    uint64_t rounds = 0;            // number of texts told
    std::deque<std::string> words;  // told in rounds for which another rank's text is missing
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
  std::vector<Rank> ranks_;  // as many as the first join named
  std::optional<std::string> end_;
  std::vector<Output> output_;
};

}  // namespace longhaul::collective::internal
