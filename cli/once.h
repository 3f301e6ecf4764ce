// Calls that change something, made so that nothing is done twice. All tries of a call have one id
// (coordinator/state/once.h), so a call whose answer was lost can be made again, even at another
// coordinator.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "cli/program.h"

namespace CLI {
class App;
}

namespace longhaul::cli {

// How long a call is tried again after its answer was lost.
inline constexpr absl::Duration kAskAgainFor = absl::Seconds(30);

// Makes an id for a call: random, so nobody else has it.
std::string NewRequestId();
// Adds --request-id to a command.
void AddRequestId(CLI::App* command, std::string* id);

// Says so where an earlier try had carried the call out.
void NoteRepeated(const Terminal& terminal, const v1::Stored& stored);

// Decides whether a call that failed is made again, and waits before that. One object for all tries
// of a call.
class Tries {
 public:
  // `undecided`: what is not known when nobody answers, "whether the run was submitted".
  Tries(Client& client, std::string id, std::string_view undecided)
      : client_(client), id_(std::move(id)), undecided_(undecided) {}
  // Returns whether to make the call again now. If not, `status` is what the user is told: the
  // error itself, if the call was refused or cannot have arrived.
  bool Again(Status* status);
  // How long one try may take, of a call that may take `limit`. A coordinator that hangs must not
  // keep the call from the other one.
  absl::Duration LimitOfOne(absl::Duration limit) const {
    return client_.alone() ? limit : std::max(limit / 4, absl::Seconds(10));
  }

 private:
  Client& client_;
  const std::string id_;
  const std::string_view undecided_;
  bool arrived_ = false;  // a try may have come to a coordinator
  std::optional<MonoTime> until_;
  absl::Duration pause_ = absl::Milliseconds(200);
};

// Calls the coordinator, again if the answer is lost. `request_id` empty: makes one.
template <class Service, class Request, class Reply>
StatusOr<Reply> AskOnce(Invocation& invocation,
                        grpc::Status (Service::*method)(grpc::ClientContext*, const Request&,
                                                        Reply*),
                        Request request, const std::string& request_id, std::string_view undecided,
                        absl::Duration limit = absl::Seconds(30)) {
  LH_ASSIGN_OR_RETURN(Client* const client, invocation.Connect());
  request.set_request_id(request_id.empty() ? NewRequestId() : request_id);
  Tries tries(*client, request.request_id(), undecided);
  while (true) {
    StatusOr<Reply> reply = client->Get(method, request, tries.LimitOfOne(limit));
    if (reply.ok()) return reply;
    Status status = reply.status();
    if (!tries.Again(&status)) return status;
  }
}

}  // namespace longhaul::cli
