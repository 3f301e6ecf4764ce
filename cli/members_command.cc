// members, members revoke, token create, token list, token revoke: who may talk to the coordinator,
// for admins.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "base/units.h"
#include "cli/format.h"
#include "cli/once.h"
#include "cli/program.h"
#include "cli/table.h"
#include "longhaul/v1/member.pb.h"

namespace longhaul::cli {
namespace {

std::string StateOf(const v1::MemberStatus& member) {
  if (member.revoked_unix_ms() != 0) return "revoked";
  return absl::FromUnixMillis(member.until_unix_ms()) <= absl::Now() ? "ended" : "member";
}

StatusOr<int> ListMembers(Invocation& invocation) {
  LH_ASSIGN_OR_RETURN(
      const v1::ListMembersReply reply,
      invocation.Get(&v1::MemberService::Stub::ListMembers, v1::ListMembersRequest()));
  if (invocation.json()) {
    invocation.PrintJson(reply);
    return kDone;
  }
  const Terminal& terminal = invocation.terminal();
  Table table({{"NAME"}, {"ROLE"}, {"STATE"}, {"JOINED"}, {"CERTIFICATE UNTIL"}, {"WORKER ID"}});
  for (const v1::MemberStatus& member : reply.members()) {
    table.AddRow({member.name(), member.role(), StateOf(member),
                  TimeText(member.joined_unix_ms(), terminal.out_is_terminal),
                  TimeText(member.until_unix_ms(), terminal.out_is_terminal), member.worker_id()});
  }
  table.Print(terminal);
  return kDone;
}

struct RevokeOptions {
  std::string name, request_id;
};

StatusOr<int> Revoke(Invocation& invocation, const RevokeOptions& options) {
  v1::RevokeMemberRequest request;
  request.set_name(options.name);
  LH_ASSIGN_OR_RETURN(const v1::RevokeMemberReply reply,
                      AskOnce(invocation, &v1::MemberService::Stub::RevokeMember, request,
                              options.request_id, "whether the member was revoked"));
  return invocation.PrintReply(reply, options.name + " is no member any more");
}

struct TokenOptions {
  std::string role, life = "1h", request_id;
  uint32_t uses = 1, members = 0;
};

StatusOr<int> CreateToken(Invocation& invocation, const TokenOptions& options) {
  LH_ASSIGN_OR_RETURN(const absl::Duration life, ParseDuration(options.life));
  v1::CreateTokenRequest request;
  request.set_role(options.role);
  request.set_seconds(absl::ToInt64Seconds(life));
  request.set_uses(options.members > 0 ? 0 : options.uses);
  request.set_members(options.members);
  LH_ASSIGN_OR_RETURN(const v1::CreateTokenReply reply,
                      AskOnce(invocation, &v1::MemberService::Stub::CreateToken, request,
                              options.request_id, "whether a token was made"));
  return invocation.PrintReply(reply, reply.token());
}

std::string RoomOf(const v1::TokenStatus& token) {
  if (token.members_most() > 0) {
    return fmt::format("{} of {} members", token.members(), token.members_most());
  }
  return token.uses_left() < 0 ? "any number of uses" : fmt::format("{} uses", token.uses_left());
}

StatusOr<int> ListTokens(Invocation& invocation) {
  LH_ASSIGN_OR_RETURN(
      const v1::ListTokensReply reply,
      invocation.Get(&v1::MemberService::Stub::ListTokens, v1::ListTokensRequest()));
  if (invocation.json()) {
    invocation.PrintJson(reply);
    return kDone;
  }
  const Terminal& terminal = invocation.terminal();
  Table table({{"ID"}, {"ROLE"}, {"UNTIL"}, {"HAS"}});
  for (const v1::TokenStatus& token : reply.tokens()) {
    table.AddRow({token.id(), token.role(),
                  TimeText(token.until_unix_ms(), terminal.out_is_terminal), RoomOf(token)});
  }
  table.Print(terminal);
  return kDone;
}

StatusOr<int> RevokeToken(Invocation& invocation, const RevokeOptions& options) {
  v1::RevokeTokenRequest request;
  request.set_id(options.name);
  LH_ASSIGN_OR_RETURN(const v1::RevokeTokenReply reply,
                      AskOnce(invocation, &v1::MemberService::Stub::RevokeToken, request,
                              options.request_id, "whether the token was revoked"));
  return invocation.PrintReply(
      reply, fmt::format("nobody joins with the token {} any more; who has, stays a member "
                         "(`longhaul members revoke`)",
                         options.name));
}

}  // namespace

void AddMembersCommands(Program& program) {
  CLI::App* const members = program.AddCommand(
      "members", "Who has joined, with role and certificate; for admins", ListMembers);
  const auto [revoke, of_revoke] = program.AddCommand(
      members, "revoke", "Send a member away: at once, on open streams, too", Revoke);
  revoke->add_option("name", of_revoke->name, "As `longhaul members` has it")->required();
  AddRequestId(revoke, &of_revoke->request_id);

  CLI::App* const token = program.app().add_subcommand(
      "token", "Join tokens, with which others become members; for admins");
  token->require_subcommand(1);
  const auto [create, options] =
      program.AddCommand(token, "create", "Make a join token and print it", CreateToken);
  create->add_option("--role", options->role, "Role of a member that joins with it")
      ->required()
      ->check(CLI::IsMember({"worker", "user", "admin", "witness"}));
  AddRequestId(create, &options->request_id);
  create
      ->add_option("--ttl", options->life,
                   "How long it may be used: 10m, 1h, 7d; at most 30d, with --members 400d")
      ->capture_default_str();
  CLI::Option* const uses = create->add_option("--uses", options->uses, "How many may join with it")
                                ->check(CLI::Range(1u, 1'000'000u))
                                ->capture_default_str();
  create
      ->add_option("--members", options->members,
                   "For machines that come and go: any number may join, but only so many are "
                   "members at a time; one that is gone makes room within an hour")
      ->check(CLI::Range(1u, 1'000'000u))
      ->excludes(uses);
  program.AddCommand(token, "list", "Join tokens that may be used, by their end", ListTokens);
  const auto [revoke_token, of_token] = program.AddCommand(
      token, "revoke", "Nobody joins with the token any more; its members stay", RevokeToken);
  revoke_token->add_option("id", of_token->name, "As `longhaul token list` has it")->required();
  AddRequestId(revoke_token, &of_token->request_id);
}

}  // namespace longhaul::cli
