//! Who speaks Chat Completions, and how.

/// Whose Chat Completions they are. Only differences that matter to a request are kept here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI itself.
    #[default]
    OpenAi,
    /// Ollama.
    Ollama,
    /// vLLM.
    Vllm,
    /// The server of llama.cpp.
    LlamaCpp,
    /// OpenRouter.
    OpenRouter,
    /// DeepSeek.
    DeepSeek,
    /// Any other server that speaks what all of them understand.
    Common,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::OpenAi, Self::Ollama, Self::Vllm, Self::LlamaCpp, Self::OpenRouter, Self::DeepSeek, Self::Common];

    /// The encoder's name and version.
    pub fn encoder(self) -> &'static str {
        match self {
            Self::OpenAi => "openai-chat@2",
            Self::Ollama => "openai-chat/ollama@2",
            Self::Vllm => "openai-chat/vllm@2",
            Self::LlamaCpp => "openai-chat/llama.cpp@2",
            Self::OpenRouter => "openai-chat/openrouter@2",
            Self::DeepSeek => "openai-chat/deepseek@2",
            Self::Common => "openai-chat/common@2",
        }
    }

    /// What turns of it are marked with.
    pub(crate) fn api(self) -> &'static str {
        self.encoder().trim_end_matches("@2")
    }

    /// Where it is found, unless said otherwise.
    pub(crate) fn base_url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Ollama => "http://localhost:11434/v1",
            Self::Vllm => "http://localhost:8000/v1",
            Self::LlamaCpp | Self::Common => "http://localhost:8080/v1",
            Self::OpenRouter => "https://openrouter.ai/api/v1",
            Self::DeepSeek => "https://api.deepseek.com/v1",
        }
    }

    /// DeepSeek refuses the reasoning of a turn that called no tool, and wants that of one that did.
    pub(super) fn refuses_reasoning_without_calls(self) -> bool {
        self == Self::DeepSeek
    }
}
