#include "coordinator/standby/ask_term.h"

#include <grpcpp/client_context.h>

#include "absl/time/clock.h"
#include "longhaul/v1/standby.grpc.pb.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {

StatusOr<uint64_t> AskTerm(const std::string& address, const std::string& trusted,
                           absl::Duration limit) {
  Credentials stranger;
  stranger.authority_pem = trusted;
  const auto stub = v1::StandbyService::NewStub(MakeChannel(address, stranger));
  grpc::ClientContext context;
  // A coordinator that is not there refuses at once, or says nothing until then.
  context.set_deadline(absl::ToChronoTime(absl::Now() + limit));
  v1::GetTermReply reply;
  LH_RETURN_IF_ERROR(FromGrpc(stub->GetTerm(&context, v1::GetTermRequest(), &reply)));
  return reply.term();
}

}  // namespace longhaul::coordinator
