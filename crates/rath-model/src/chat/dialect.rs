//! The dialects of Chat Completions.

use rath_core::AnswerSchemaSupport;

/// A dialect of Chat Completions. Only differences that matter to a request are modelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI.
    #[default]
    OpenAi,
    /// Ollama.
    Ollama,
    /// vLLM.
    Vllm,
    /// The llama.cpp server.
    LlamaCpp,
    /// OpenRouter.
    OpenRouter,
    /// DeepSeek.
    DeepSeek,
    /// Any other server: only what all dialects have in common is used.
    OpenAiCompatible,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 7] = [
        Self::OpenAi,
        Self::Ollama,
        Self::Vllm,
        Self::LlamaCpp,
        Self::OpenRouter,
        Self::DeepSeek,
        Self::OpenAiCompatible,
    ];

    /// The name and version of the dialect's encoder.
    pub fn encoder(self) -> &'static str {
        match self {
            Self::OpenAi => "openai-chat@2",
            Self::Ollama => "openai-chat/ollama@2",
            Self::Vllm => "openai-chat/vllm@2",
            Self::LlamaCpp => "openai-chat/llama.cpp@2",
            Self::OpenRouter => "openai-chat/openrouter@2",
            Self::DeepSeek => "openai-chat/deepseek@2",
            Self::OpenAiCompatible => "openai-chat/common@2",
        }
    }

    /// The name that turns of this dialect are stored with.
    pub(crate) fn api(self) -> &'static str {
        self.encoder().trim_end_matches("@2")
    }

    /// The default base URL.
    pub(crate) fn base_url(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Ollama => "http://localhost:11434/v1",
            Self::Vllm => "http://localhost:8000/v1",
            Self::LlamaCpp | Self::OpenAiCompatible => "http://localhost:8080/v1",
            Self::OpenRouter => "https://openrouter.ai/api/v1",
            Self::DeepSeek => "https://api.deepseek.com/v1",
        }
    }

    /// When the dialect takes a schema of the answer. DeepSeek knows no schemas. Servers that constrain what a model
    /// generates cannot take a schema together with tools.
    pub(super) fn schema_support(self, model: &str) -> AnswerSchemaSupport {
        match self {
            Self::OpenAi => schema_support_of_openai(model),
            Self::OpenRouter => AnswerSchemaSupport::Always,
            Self::Ollama | Self::Vllm | Self::LlamaCpp | Self::OpenAiCompatible => AnswerSchemaSupport::WithoutTools,
            Self::DeepSeek => AnswerSchemaSupport::Never,
        }
    }

    /// DeepSeek rejects the reasoning of a turn without tool calls, and requires that of a turn with tool calls.
    pub(super) fn refuses_reasoning_without_calls(self) -> bool {
        self == Self::DeepSeek
    }
}

/// OpenAI's models before GPT-4o take no schema of the answer.
pub(crate) fn schema_support_of_openai(model: &str) -> AnswerSchemaSupport {
    let is_old = model.starts_with("gpt-3") || model == "gpt-4" || model.starts_with("gpt-4-");
    if is_old { AnswerSchemaSupport::Never } else { AnswerSchemaSupport::Always }
}
