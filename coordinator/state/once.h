// Calls that their callers may make again: whoever gets no answer makes the call again with the id
// that it had, and nothing is done twice. Plain data.
#pragma once

#include <cstdint>
#include <string>

namespace google::protobuf {
class Message;
}

namespace longhaul::coordinator {

// What an event of a call carries about that.
struct Once {
  std::string owner = {};         // the caller's member name; empty: the coordinator has no TLS
  std::string id = {};            // as the caller gave it; empty: every call counts
  std::string asked_sha256 = {};  // of the request without its id
  // The caller's rights were not looked at, because the call was answered already. Where that
  // answer is forgotten meanwhile, nothing is done.
  bool only_again = false;
};

// A call that was answered.
struct AnsweredCall {
  std::string owner, id;
  std::string kind;  // "submit", "stop", ...
  std::string asked_sha256;
  std::string reply;  // the encoded message
  int64_t unix_ms = 0;
};

// Returns the hash for Once::asked_sha256 of a request that has a field `request_id`.
std::string Sha256WithoutId(const google::protobuf::Message& request);

}  // namespace longhaul::coordinator
