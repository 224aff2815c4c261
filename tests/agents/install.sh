#!/bin/sh
# Installs the agents, and the adapters with which editors use two of them, into target/agents, in the versions that
# were tried last. The adapters come without programs of their own: they are told to run the agents beside them.
set -eu
cd "$(dirname "$0")/../.."
npm install --prefix target/agents --no-audit --no-fund --loglevel=error \
	@anthropic-ai/claude-code@2.1.197 \
	@openai/codex@0.169.0 \
	@google/gemini-cli@0.61.0 \
	opencode-ai@1.18.33
exec npm install --prefix target/agents/acp --omit=optional --no-audit --no-fund --loglevel=error \
	@agentclientprotocol/claude-agent-acp@0.101.0 \
	@agentclientprotocol/codex-acp@2.6.0
