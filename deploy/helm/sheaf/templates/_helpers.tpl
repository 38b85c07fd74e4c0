{{- define "sheaf.name" -}}
{{- printf "%s-%s" .Release.Name .role | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "sheaf.selector" -}}
app.kubernetes.io/name: sheaf
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "sheaf.labels" -}}
{{ include "sheaf.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* The name of a pod of a role in the DNS of the cluster: the address of a node, whatever its IP. */ -}}
{{- define "sheaf.domain" -}}
{{ include "sheaf.name" . }}.{{ .Release.Namespace }}.svc
{{- end -}}
