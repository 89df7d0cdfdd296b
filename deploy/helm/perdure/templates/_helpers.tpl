{{- define "perdure.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end -}}
{{- end }}

{{- define "perdure.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "perdure.labels" -}}
{{ include "perdure.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The API and the dashboard, unless config.http.bind is empty. */ -}}
{{- define "perdure.http" -}}
{{- if dig "http" "bind" "0.0.0.0:18083" .Values.config }}true{{ end }}
{{- end }}

{{- /* The broker's settings: the chart's, and over them .Values.config. */ -}}
{{- define "perdure.config" -}}
{{- $listeners := dict }}
{{- if not .Values.tls.only }}
{{- $_ := set $listeners "tcp" (dict "bind" "0.0.0.0:1883") }}
{{- $_ := set $listeners "ws" (dict "bind" "0.0.0.0:8083") }}
{{- else }}
{{- $_ := set $listeners "tcp" (dict "enabled" false) }}
{{- end }}
{{- if .Values.tls.existingSecret }}
{{- $files := dict "certificate" "/etc/perdure/tls/tls.crt" "private_key" "/etc/perdure/tls/tls.key" }}
{{- $_ := set $listeners "tls" (merge (dict "bind" "0.0.0.0:8883") $files) }}
{{- $_ := set $listeners "wss" (merge (dict "bind" "0.0.0.0:8084") $files) }}
{{- end }}
{{- $made := dict "listeners" $listeners
    "storage" (dict "path" "/data")
    "metrics" (dict "bind" "0.0.0.0:9090")
    "log" (dict "format" "json") }}
{{- if include "perdure.http" . }}
{{- $_ := set $made "http" (dict "bind" "0.0.0.0:18083") }}
{{- end }}
{{- if .Values.cluster.enabled }}
{{- $_ := set $made "cluster" (dict "name" (.Values.cluster.name | default .Release.Name) "kafka" .Values.cluster.kafka) }}
{{- end }}
{{- if .Values.auth.existingSecret }}
{{- $_ := set $made "auth" (dict "password_file" "/etc/perdure/auth/users") }}
{{- end }}
{{- toYaml (mergeOverwrite $made (deepCopy .Values.config)) }}
{{- end }}

{{- /* Where the other nodes send clients that one sends away. */ -}}
{{- define "perdure.advertise" -}}
{{- if .Values.cluster.advertise }}{{ .Values.cluster.advertise }}
{{- else }}$(POD_NAME).{{ include "perdure.name" . }}-headless.{{ .Release.Namespace }}.svc:{{ ternary "8883" "1883" .Values.tls.only }}
{{- end }}
{{- end }}

{{- /* (root, path below the API, options of `perdure health`) */ -}}
{{- define "perdure.probe" -}}
{{- if include "perdure.http" (index . 0) -}}
httpGet: {path: /api/v1/{{ index . 1 }}, port: http{{ if dig "http" "certificate" "" (index . 0).Values.config }}, scheme: HTTPS{{ end }}}
{{- else -}}
exec: {command: [perdure, health{{ range (slice . 2) }}, {{ . | quote }}{{ end }}]}
{{- end }}
{{- end }}
